/* SPDX-License-Identifier: Apache-2.0 */
/* cairn-server's own main, under a name that the simulation can call. */
int sim_server_main(int argc, char **argv);
#define main sim_server_main
#include "server/main.c"
