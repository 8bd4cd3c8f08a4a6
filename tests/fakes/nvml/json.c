#include "json.h"

#include <stdlib.h>
#include <string.h>

static const char *skip(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static const char *read_value(const char *at, struct value *into);

static const char *read_text(const char *at, char **into)
{
    const char *end = at + 1;
    char *to;
    while (*end && *end != '"')
        end += *end == '\\' && end[1] ? 2 : 1;
    if (*at != '"' || *end != '"')
        return NULL;
    to = *into = calloc(1, (size_t)(end - at));
    for (at++; at < end; at++) {
        if (*at == '\\')
            at++;
        *to++ = *at;
    }
    return end + 1;
}

static const char *read_items(const char *at, struct value *into, char closing)
{
    struct value **last = &into->first;
    at = skip(at + 1);
    if (*at == closing)
        return at + 1;
    for (;;) {
        struct value *item = calloc(1, sizeof *item);
        *last = item;
        last = &item->next;
        if (closing == '}') {
            at = read_text(at, &item->key);
            if (!at || *(at = skip(at)) != ':')
                return NULL;
            at = skip(at + 1);
        }
        at = read_value(at, item);
        if (!at)
            return NULL;
        at = skip(at);
        if (*at == closing)
            return at + 1;
        if (*at != ',')
            return NULL;
        at = skip(at + 1);
    }
}

static const char *read_value(const char *at, struct value *into)
{
    static const struct { const char *word; enum kind kind; double number; } words[] = {
        { "null", NOTHING, 0 }, { "false", TRUTH, 0 }, { "true", TRUTH, 1 },
    };
    char *end;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strncmp(at, words[i].word, strlen(words[i].word))) {
            into->kind = words[i].kind;
            into->number = words[i].number;
            return at + strlen(words[i].word);
        }
    switch (*at) {
    case '"':
        into->kind = TEXT;
        return read_text(at, &into->text);
    case '[':
        into->kind = LIST;
        return read_items(at, into, ']');
    case '{':
        into->kind = TABLE;
        return read_items(at, into, '}');
    default:
        into->kind = NUMBER;
        into->number = strtod(at, &end);
        return end == at ? NULL : end;
    }
}

struct value *json_read(const char *text)
{
    struct value *whole = calloc(1, sizeof *whole);
    const char *end = read_value(skip(text), whole);
    return end && !*skip(end) ? whole : NULL;
}

const struct value *json_get(const struct value *table, const char *key)
{
    for (const struct value *item = table ? table->first : NULL; item; item = item->next)
        if (item->key && !strcmp(item->key, key))
            return item;
    return NULL;
}

double json_number(const struct value *table, const char *key, double otherwise)
{
    const struct value *value = json_get(table, key);
    return value && (value->kind == NUMBER || value->kind == TRUTH) ? value->number : otherwise;
}

const char *json_text(const struct value *table, const char *key, const char *otherwise)
{
    const struct value *value = json_get(table, key);
    return value && value->kind == TEXT ? value->text : otherwise;
}

unsigned json_length(const struct value *list)
{
    unsigned length = 0;
    for (const struct value *item = list ? list->first : NULL; item; item = item->next)
        length++;
    return length;
}

const struct value *json_item(const struct value *list, unsigned index)
{
    const struct value *item = list ? list->first : NULL;
    while (item && index--)
        item = item->next;
    return item;
}
