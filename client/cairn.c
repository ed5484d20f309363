/* SPDX-License-Identifier: Apache-2.0 */
/* The one source that is compiled into libcairn.so itself; everything else comes with the parts. */
#include <cairn/cairn.h>

const char *cairn_version(void) {
    return CAIRN_VERSION;
}
