/* SPDX-License-Identifier: Apache-2.0 */
/* Civil time to milliseconds, without the C library's zones and locales. */
#include "store/time.h"

#include <stdio.h>

struct civil {
    int year, month, day, hour, minute, second, ms;
};

/* Days since 1970-01-01; a year begins in March, so that the leap day is its last. */
static int64_t days_of(const struct civil *c) {
    int64_t year = c->year - (c->month <= 2);
    int64_t month = (c->month + 9) % 12;
    int64_t day_of_year = (153 * month + 2) / 5 + c->day - 1;
    return year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719468;
}

static int days_in(const struct civil *c) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = c->year % 4 == 0 && (c->year % 100 != 0 || c->year % 400 == 0);
    return days[c->month - 1] + (leap && c->month == 2);
}

static bool is_plausible(const struct civil *c) {
    return c->year >= 1970 && c->year <= 9999 && c->month >= 1 && c->month <= 12 && c->day >= 1 &&
           c->day <= days_in(c) && c->hour >= 0 && c->hour <= 23 && c->minute >= 0 &&
           c->minute <= 59 && c->second >= 0 && c->second <= 60;
}

static enum cairn_code civil_to_ms(const struct civil *c, const char *text, int64_t *ret,
                                   struct cairn_error *err) {
    if (!is_plausible(c)) return cairn_fail(err, CAIRN_PROTOCOL, "\"%.40s\" is no time", text);
    *ret = (((days_of(c) * 24 + c->hour) * 60 + c->minute) * 60 + c->second) * 1000 + c->ms;
    return CAIRN_OK;
}

enum cairn_code cairn_s3_time_iso(const char *text, int64_t *ret_wall_ms, struct cairn_error *err) {
    struct civil c = {0};
    int used = 0;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &c.year, &c.month, &c.day, &c.hour, &c.minute,
               &c.second, &used) != 6)
        return cairn_fail(err, CAIRN_PROTOCOL, "\"%.40s\" is no time", text);
    const char *at = text + used;
    if (*at == '.') {
        int unit = 100;
        for (at++; *at >= '0' && *at <= '9'; at++, unit /= 10) c.ms += (*at - '0') * unit;
    }
    if (strcmp(at, "Z") != 0 && strcmp(at, "+00:00") != 0 && strcmp(at, "+0000") != 0)
        return cairn_fail(err, CAIRN_PROTOCOL, "\"%.40s\" is not in UTC", text);
    return civil_to_ms(&c, text, ret_wall_ms, err);
}

/* "Z", nothing (UTC), "+02:00" or "-0700"; minutes ahead of UTC. */
static bool read_zone(const char *text, int *ret_minutes) {
    int hours = 0, minutes = 0, used = 0;
    *ret_minutes = 0;
    if (!*text || !strcmp(text, "Z") || !strcmp(text, "z")) return true;
    if (*text != '+' && *text != '-') return false;
    if ((sscanf(text + 1, "%2d:%2d%n", &hours, &minutes, &used) != 2 || text[1 + used]) &&
        (sscanf(text + 1, "%2d%2d%n", &hours, &minutes, &used) != 2 || text[1 + used]))
        return false;
    *ret_minutes = (*text == '-' ? -1 : 1) * (60 * hours + minutes);
    return hours >= 0 && hours < 24 && minutes >= 0 && minutes < 60;
}

static bool read_iso_loosely(const char *text, int64_t *ret) {
    struct civil c = {0};
    int used = 0, ahead = 0;
    char between = 0;
    if (sscanf(text, "%4d-%2d-%2d%c%2d:%2d:%2d%n", &c.year, &c.month, &c.day, &between, &c.hour,
               &c.minute, &c.second, &used) != 7 ||
        !strchr("Tt ", between))
        return false;
    const char *at = text + used;
    if (*at == '.' || *at == ',') {
        int unit = 100;
        for (at++; *at >= '0' && *at <= '9'; at++, unit /= 10) c.ms += (*at - '0') * unit;
    }
    if (!read_zone(at, &ahead) || civil_to_ms(&c, text, ret, NULL) != CAIRN_OK) return false;
    *ret -= (int64_t)ahead * 60000;
    return true;
}

bool cairn_s3_time_any(const char *text, int64_t *ret_wall_ms) {
    return read_iso_loosely(text, ret_wall_ms) ||
           cairn_s3_time_http(text, ret_wall_ms, NULL) == CAIRN_OK;
}

static bool take_month(struct civil *c, const char *name) {
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const char *at = strlen(name) == 3 ? strstr(months, name) : NULL;
    if (!at || (at - months) % 3 != 0) return false;
    c->month = (int)(at - months) / 3 + 1;
    return true;
}

/* "Sun, 06 Nov 1994 08:49:37 GMT" */
static bool read_fixed(const char *text, struct civil *c) {
    char month[4] = "", zone[4] = "";
    int used = 0;
    return sscanf(text, "%*3[A-Za-z], %2d %3[A-Za-z] %4d %2d:%2d:%2d %3[A-Z]%n", &c->day, month,
                  &c->year, &c->hour, &c->minute, &c->second, zone, &used) == 7 &&
           !text[used] && !strcmp(zone, "GMT") && take_month(c, month);
}

/* "Sunday, 06-Nov-94 08:49:37 GMT": a year from 1970 to 2069, since none of ours is older. */
static bool read_rfc850(const char *text, struct civil *c) {
    char month[4] = "", zone[4] = "";
    int used = 0;
    if (sscanf(text, "%*9[A-Za-z], %2d-%3[A-Za-z]-%2d %2d:%2d:%2d %3[A-Z]%n", &c->day, month,
               &c->year, &c->hour, &c->minute, &c->second, zone, &used) != 7 ||
        text[used] || strcmp(zone, "GMT") != 0)
        return false;
    c->year += c->year < 70 ? 2000 : 1900;
    return take_month(c, month);
}

/* "Sun Nov  6 08:49:37 1994" */
static bool read_asctime(const char *text, struct civil *c) {
    char month[4] = "";
    int used = 0;
    return sscanf(text, "%*3[A-Za-z] %3[A-Za-z] %2d %2d:%2d:%2d %4d%n", month, &c->day, &c->hour,
                  &c->minute, &c->second, &c->year, &used) == 6 &&
           !text[used] && take_month(c, month);
}

enum cairn_code cairn_s3_time_http(const char *text, int64_t *ret_wall_ms,
                                   struct cairn_error *err) {
    static bool (*const forms[])(const char *, struct civil *) = {read_fixed, read_rfc850,
                                                                  read_asctime};
    for (size_t i = 0; i < CAIRN_COUNT(forms); i++) {
        struct civil c = {0};
        if (forms[i](text, &c)) return civil_to_ms(&c, text, ret_wall_ms, err);
    }
    return cairn_fail(err, CAIRN_PROTOCOL, "\"%.40s\" is no HTTP time", text);
}
