/* A JSON reader that is just enough for the scenarios of the stand-in. */
#ifndef JSON_H
#define JSON_H

enum kind { NOTHING, TRUTH, NUMBER, TEXT, LIST, TABLE };

/* A value; a list's items and a table's values are chained by `next`. */
struct value {
    enum kind kind;
    double number; /* also 0 or 1 of a truth */
    char *text;
    char *key; /* in a table */
    struct value *first, *next;
};

/* Reads a whole document; null if it is not one. It is never freed: a test's process ends soon. */
struct value *json_read(const char *text);

/* What a table has under this key, or null. A null table has nothing. */
const struct value *json_get(const struct value *table, const char *key);
double json_number(const struct value *table, const char *key, double otherwise);
const char *json_text(const struct value *table, const char *key, const char *otherwise);
unsigned json_length(const struct value *list);
const struct value *json_item(const struct value *list, unsigned index);

#endif
