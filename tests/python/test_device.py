# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=8 rooms=python,client,uploader,server
"""Arrays in a device's memory, as CuPy, Numba and DLPack give them, over a CUDA runtime without a GPU
(tests/support/fake_cuda.h): the host cannot read that memory, streams carry out their work late, and calls fail on request."""
import array
import ctypes

import package
import cairn

_TO_DEVICE, _TO_HOST = 1, 2
_ILLEGAL_ADDRESS = 700
_DEVICE_OF_DLPACK = 2
_NUMBERS = range(48)


class Cuda:
    """The fake is opened by its path; what asks for the soname later gets it, too."""

    def __init__(self):
        self.library = ctypes.CDLL(str(package.BIN / "fake_cuda" / "libcudart.so.13"), mode=ctypes.RTLD_GLOBAL)
        self.library.fake_cuda_reset()

    def do(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        assert status == 0, (name, status)

    def memory(self, size):
        made = ctypes.c_void_p()
        self.do("cudaMalloc", ctypes.byref(made), ctypes.c_size_t(size))
        return made.value

    def stream(self):
        made = ctypes.c_void_p()
        self.do("cudaStreamCreateWithFlags", ctypes.byref(made), 1)
        return made.value

    def write(self, to, data, stream=None, later_ms=None):
        """At once, or in the stream after a while."""
        if later_ms is not None:
            self.library.fake_cuda_write_later(ctypes.c_void_p(stream), ctypes.c_void_p(to), data, ctypes.c_size_t(len(data)),
                                               later_ms)
            return
        self.do("cudaMemcpyAsync", ctypes.c_void_p(to), data, ctypes.c_size_t(len(data)), _TO_DEVICE, None)
        self.do("cudaStreamSynchronize", None)

    def read(self, at, size):
        into = ctypes.create_string_buffer(size)
        self.do("cudaMemcpyAsync", into, ctypes.c_void_p(at), ctypes.c_size_t(size), _TO_HOST, None)
        self.do("cudaStreamSynchronize", None)
        return into.raw


class OfCupy:
    """An array of a device, as CuPy and Numba describe theirs."""

    def __init__(self, cuda, values=_NUMBERS, shape=(6, 8), strides=None, stream=None, read_only=False, typestr="<f4"):
        self.cuda, self.bytes = cuda, array.array("f", values).tobytes()
        self.pointer = cuda.memory(len(self.bytes))
        cuda.write(self.pointer, self.bytes)
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "data": (self.pointer, read_only),
                                         "strides": strides, "stream": stream, "version": 3}

    def values(self):
        return list(memoryview(self.cuda.read(self.pointer, len(self.bytes))).cast("f"))


class OfDlpack:
    """The same memory, as DLPack has it."""

    def __init__(self, of):
        from cairn._arrays import _DLTensor
        self.of = of
        self._shape = (ctypes.c_int64 * 2)(6, 8)
        self.table = _DLTensor(of.pointer, _DEVICE_OF_DLPACK, 0, 2, 2, 32, 1, self._shape, None, 0)

    def __dlpack__(self):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.table), b"dltensor", None)

    def __dlpack_device__(self):
        return _DEVICE_OF_DLPACK, 0


class Device(package.Worlds):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cuda = Cuda()

    def setUp(self):
        super().setUp()
        self.cuda.library.fake_cuda_reset()

    def saved(self, run, step, name="w"):
        return memoryview(run.at(step).tensor(name, kind="array").data).cast("f").tolist()

    def test_arrays_of_a_device_are_saved_and_loaded_into_a_device(self):
        run = self.opened()
        first, second = OfCupy(self.cuda), OfDlpack(OfCupy(self.cuda, range(100, 148)))
        host = array.array("f", [7.0])
        run.save(1, {"cupy": first, "dlpack": second, "host": host, "step": 1})
        tensors = run.at(1).tensors
        self.assertEqual((tensors["cupy"].dtype, tensors["cupy"].shape), ("F32", (6, 8)))
        self.assertEqual((self.saved(run, 1, "cupy"), self.saved(run, 1, "dlpack"), self.saved(run, 1, "host")),
                         ([float(at) for at in _NUMBERS], [float(at) for at in range(100, 148)], [7.0]))
        into = {"cupy": OfCupy(self.cuda, [0.0] * 48), "dlpack": OfDlpack(OfCupy(self.cuda, [0.0] * 48)),
                "host": array.array("f", [0.0]), "step": 0}
        run.at(1).load(into=into)
        self.assertEqual((into["cupy"].values(), into["dlpack"].of.values(), into["host"][0], into["step"]),
                         (first.values(), second.of.values(), 7.0, 1))
        turned = OfCupy(self.cuda, [0.0] * 48, shape=(6, 8), strides=(4, 24))
        run.at(1).tensor("cupy", out=turned)
        self.assertEqual(turned.values(), [float(at % 6 * 8 + at // 6) for at in range(48)])

    def test_an_array_with_strides_is_saved_in_the_order_of_its_elements(self):
        run = self.opened()
        run.save(1, {"w": OfCupy(self.cuda, shape=(8, 6), strides=(4, 32))})
        self.assertEqual(self.saved(run, 1), [float(at % 6 * 8 + at // 6) for at in range(48)])

    def test_a_save_waits_for_what_the_arrays_stream_still_does(self):
        run = self.opened()
        stream = self.cuda.stream()
        late = OfCupy(self.cuda, [0.0] * 48, stream=stream)
        self.cuda.write(late.pointer, array.array("f", _NUMBERS).tobytes(), stream, later_ms=100)
        run.save(1, {"w": late})
        self.assertEqual(self.saved(run, 1), [float(at) for at in _NUMBERS])
        default = OfCupy(self.cuda, [0.0] * 48, stream=1)  # the interface's name of the default stream
        self.cuda.write(default.pointer, array.array("f", _NUMBERS).tobytes(), None, later_ms=100)
        run.save(2, {"w": default})
        self.assertEqual(self.saved(run, 2), [float(at) for at in _NUMBERS])

    def test_a_background_save_is_copied_at_the_end_of_its_block(self):
        run = self.opened()
        weights = OfCupy(self.cuda)
        with run.saving(1, {"w": weights}) as save:
            pass
        self.assertTrue(save.staged.done())
        self.cuda.write(weights.pointer, bytes(len(weights.bytes)))
        save.result(package.HANG_S)
        self.assertEqual(self.saved(run, 1), [float(at) for at in _NUMBERS])

    def test_a_failure_of_the_device_is_raised_with_its_name_and_the_next_save_goes_on(self):
        run = self.opened()
        weights = OfCupy(self.cuda)
        run.save(1, {"w": weights})
        self.cuda.library.fake_cuda_fail(b"MemcpyAsync", 0, _ILLEGAL_ADDRESS, 0)
        with self.assertRaises(cairn.CairnError) as caught:
            run.save(2, {"w": weights})
        self.assertEqual((caught.exception.code, caught.exception.step), ("io-error", 2))
        self.assertIn(str(_ILLEGAL_ADDRESS), str(caught.exception))
        run.save(3, {"w": weights})
        self.assertEqual([row.step for row in run.list()], [3, 1])

    def test_what_cannot_be_taken_is_refused_by_its_name(self):
        run = self.opened()
        for array_, why in ((OfCupy(self.cuda, stream=2), "per-thread"), (OfCupy(self.cuda, typestr=">f4"), ">f4"),
                            (OfCupy(self.cuda, typestr="|V2"), "V2")):
            with self.assertRaises(cairn.CairnError) as caught:
                run.async_save(1, {"deep": [array_]})
            self.assertEqual(caught.exception.code, "unsupported")
            self.assertIn("deep.0: ", str(caught.exception))
            self.assertIn(why, str(caught.exception))
        run.save(1, {"w": OfCupy(self.cuda)})
        with self.assertRaisesRegex(cairn.Invalid, "read-only"):
            run.at(1).tensor("w", out=OfCupy(self.cuda, read_only=True))


if __name__ == "__main__":
    package.main()
