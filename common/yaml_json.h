/* SPDX-License-Identifier: Apache-2.0 */
/*
 * yaml_json: a document in the YAML that api/openapi.yaml is written in, as JSON.
 *
 * Why:     some programs read OpenAPI as JSON alone, and a second document beside the first one
 *          would be another one after the next change.
 * Promise: 1   what it takes it reads as YAML 1.2 does; anything else is CAIRN_UNSUPPORTED with its
 *              line, and never another value.
 * Limits:  block mappings and sequences, by two spaces; flow ones, also over several lines; plain
 *          scalars of one line, quoted ones, literal (|) and folded (>) texts of equal indent,
 *          with or without "-"; null, true, false and whole numbers from 0 on. No anchors, tags,
 *          tabs, documents; CAIRN_YAML_DEPTH_MAX levels.
 * Threads: stateless.
 * Next:    server/system.c; tests/python/generated_client.py compares it with PyYAML.
 */
#pragma once

#include "common/json.h"

#define CAIRN_YAML_DEPTH_MAX 40

enum cairn_code cairn_yaml_json(struct cairn_view text, json_t **ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
