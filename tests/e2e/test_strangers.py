# SPDX-License-Identifier: Apache-2.0
# ctest: labels=proxies
"""Somebody else answers in the server's place: a real nginx that has no route, refuses, bounds bodies, leads elsewhere, or shows a
page to sign in. No verb takes that for the server's word, above all not for "not found" (status 3), at which scripts begin anew."""
import os
import unittest

import proxies
from world import World, in_time

# What nginx does with all but /livez; the status of the command, and what it says.
STRANGERS = {
    "return 404;": (5, "answered 404"),
    "return 403;": (5, "answered 403"),
    "return 410;": (5, "answered 410"),
    "return 502;": (5, "answered 502"),
    "return 503;": (5, "answered 503"),
    "return 301 https://elsewhere.example$request_uri;": (1, "leads to https://elsewhere.example/v1/"),
    "return 308 /cairn$request_uri;": (1, "leads to "),
    "return 413;": (1, "answered 413"),
    "default_type text/html; return 200 '<html>sign in</html>';": (1, ""),
    "default_type application/json; return 404 '{\"message\": \"no Route matched with those values\"}';": (5, "answered 404"),
    "default_type application/problem+json; return 404 '{\"title\": \"Not Found\", \"status\": 404}';": (5, "answered 404"),
}
VERBS = (("ls",), ("ls", "p/r"), ("show", "p/r@1"), ("show", "p/r"), ("get", "p/r@1", "-d", "back"), ("verify", "p/r@1"),
         ("wait", "p/r@1", "--timeout", "TIME"), ("watch", "p/r", "--until", "committed", "--timeout", "TIME"), ("events", "p/r"), ("du",), ("nodes",),
         ("label", "p/r@1", "a=b"), ("pin", "p/r@1"), ("rm", "p/r@1", "--yes"), ("policy", "get", "p/r"))


TIMED_OUT = 8  # of a verb that waits for a proxy to be well


class Strangers(unittest.TestCase):
    def test_no_verb_takes_a_strangers_answer_for_the_servers(self):
        why = proxies.missing("nginx")
        if why:
            self.skipTest(why)
        world = World(nodes=0, case=self)
        for what, (status, said) in STRANGERS.items():
            proxy = proxies.Proxy("nginx", [world.port_of(0)], [
                ("    location / {\n", "    location = /livez { proxy_pass http://cairn; }\n    location / { " + what + "\n")])
            self.addCleanup(proxy.stop)
            proxy.start()
            for words in VERBS:
                with self.subTest(what=what, verb=words):
                    def told(seconds):
                        given = [word.replace("TIME", f"{1000 * seconds:.0f}ms") for word in words]
                        done = world.cairn(*given, status=None, env={"CAIRN_URL": proxy.url, "TMPDIR": str(world.root)})
                        right = (status, TIMED_OUT) if words[0] == "watch" else (status,)
                        if done.returncode in right and said in done.stderr and proxy.url in done.stderr:
                            return True
                        self.assertEqual((given == list(words), done.returncode), (False, TIMED_OUT),
                                         f"{done.returncode}: {done.stdout}{done.stderr}")
                        return False  # a busy machine needs more time
                    in_time(told, 0.3)
            proxy.stop()
        self.assertFalse(os.path.exists("back"))


if __name__ == "__main__":
    unittest.main()
