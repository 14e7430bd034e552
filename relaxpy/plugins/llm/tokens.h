/* The tokenizer of NAME, written by relaxpy @VERSION@: texts as tokens, and tokens as texts.
 *
 *     NAME_tokens tokens;
 *     int32_t status = NAME_tokens_open(&tokens, tables, bytes);   (the content of NAME.tokens)
 *     int64_t most = NAME_tokens_most(&tokens, length);
 *     void *memory = malloc(NAME_tokens_workspace(&tokens, length));
 *     int64_t count = NAME_tokens_encode(&tokens, text, length, 0, found, most, memory);
 *
 * The content of NAME.tokens is read where it is, for as long as tokens are used: mapped, or copied to
 * a multiple of 4 bytes. Texts are UTF-8, and need no zero at the end. Nothing is allocated, and nothing
 * global changed. Negative numbers are statuses, whose text is NAME_tokens_error(status). */
#ifndef @GUARD@
#define @GUARD@

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The most tokens of a text, the number of scores, and the elements of keys, and of values. */
@LIMITS@
enum { @SECTIONS_IN_ORDER@, NAME_T_PARTS };
enum { @NUMBERS_IN_ORDER@, NAME_N_COUNT };
enum { @CODES_IN_ORDER@ };

typedef struct NAME_tokens {
    const int32_t *part[NAME_T_PARTS];
    int64_t size[NAME_T_PARTS];
} NAME_tokens;

/* Read tables: 0, or a status. */
static inline int32_t NAME_tokens_open(NAME_tokens *t, const void *tables, int64_t bytes) {
    const int32_t *words = (const int32_t *)tables;
    if (tables == NULL || bytes < 8 + 8 * NAME_T_PARTS || bytes / 4 > INT32_MAX) return -1;
    if (words[0] != @MARK@ || (int64_t)words[1] * 4 != bytes) return -1;
    for (int n = 0; n < NAME_T_PARTS; n++) {
        int64_t start = words[2 + 2 * n], size = words[3 + 2 * n];
        if (start < 0 || size < 0 || start + size > words[1]) return -1;
        t->part[n] = words + start;
        t->size[n] = size;
    }
    return t->size[NAME_T_numbers] == NAME_N_COUNT ? 0 : -1;
}

/* The text of a status. */
static inline const char *NAME_tokens_error(int64_t status) {
    if (status >= 0) return "success";
    if (status == -1) return "the tables are not those that this header reads, or not complete";
    if (status == -2) return "the text is not UTF-8";
    if (status == -3) return "there is no room for all of the tokens, or of the text";
    return "the text is too long";
}

/* The number of tokens, which are those below it. */
static inline int32_t NAME_tokens_count(const NAME_tokens *t) {
    return (int32_t)t->size[NAME_T_starts] - 1;
}

/* The bytes that a token stands for, which may be a part of a character; none for tokens that only
 * control the model. They are in the tables, without a zero at the end. */
static inline const char *NAME_tokens_text(const NAME_tokens *t, int32_t token, int64_t *bytes) {
    const int32_t *starts = t->part[NAME_T_starts];
    *bytes = 0;
    if (token < 0 || token >= NAME_tokens_count(t) || t->part[NAME_T_hidden][token]) return "";
    *bytes = starts[token + 1] - starts[token];
    return (const char *)t->part[NAME_T_texts] + starts[token];
}

/* The text of tokens: its bytes, or a status. A text that does not begin with its first token, but
 * continues another one, keeps the space before it. */
static inline int64_t NAME_tokens_decode(const NAME_tokens *t, const int32_t *tokens, int64_t count,
                                         int continues, char *text, int64_t most) {
    int64_t found = 0, size;
    int strips = !continues && t->part[NAME_T_numbers][NAME_N_strips];
    for (int64_t n = 0; n < count; n++) {
        const char *part = NAME_tokens_text(t, tokens[n], &size);
        if (size > 0 && strips) {
            if (*part == ' ') part++, size--;
            strips = 0;
        }
        if (size > most - found) return -3;
        if (size > 0) memcpy(text + found, part, (size_t)size);
        found += size;
    }
    return found;
}

/* 1 if a token ends an answer. */
static inline int NAME_tokens_is_end(const NAME_tokens *t, int32_t token) {
    for (int64_t n = 0; n < t->size[NAME_T_ends]; n++)
        if (t->part[NAME_T_ends][n] == token) return 1;
    return 0;
}

/* The text before the first question of a conversation (which 0), before later ones (1), after each (2),
 * where the answer begins, and between a question and an earlier answer (3); null if the model has no chat
 * template, or has one that does not write messages in turns between the same texts.@ABOUT_TURNS@ */
static inline const char *NAME_tokens_turn(const NAME_tokens *t, int which, int64_t *bytes) {
    const int32_t *starts = t->part[NAME_T_turn_starts];
    *bytes = 0;
    if (t->size[NAME_T_turn_starts] == 0 || which < 0 || which > 4) return NULL;
    *bytes = starts[which + 1] - starts[which];
    return (const char *)t->part[NAME_T_turn_texts] + starts[which];
}

/* The bytes of the white space at the start of a text, or at its end, or 0. */
static inline int NAME_t_space(const char *text, int64_t bytes, int at_end) {
    static const char *const spaces[] = {
        "\xC2\x85", "\xC2\xA0", "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81", "\xE2\x80\x82",
        "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87",
        "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8", "\xE2\x80\xA9",
        "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};
    if (bytes == 0) return 0;
    char c = text[at_end ? bytes - 1 : 0];
    if ((c >= 9 && c <= 13) || (c >= 28 && c <= 32)) return 1;
    for (size_t n = 0; n < sizeof spaces / sizeof *spaces; n++) {
        int64_t size = (int64_t)strlen(spaces[n]);
        if (size <= bytes && memcmp(text + (at_end ? bytes - size : 0), spaces[n], (size_t)size) == 0)
            return (int)size;
    }
    return 0;
}

/* A text without the white space at its start (sides 1), at its end (2), or at both (3). */
static inline const char *NAME_t_trimmed(const char *text, int64_t *bytes, int32_t sides) {
    int space;
    for (; sides & 1 && (space = NAME_t_space(text, *bytes, 0)) > 0; *bytes -= space) text += space;
    while (sides & 2 && (space = NAME_t_space(text, *bytes, 1)) > 0) *bytes -= space;
    return text;
}

/* A question as the chat template writes it: where it begins, and its bytes. Some templates take off
 * the white space around it. */
static inline const char *NAME_tokens_question(const NAME_tokens *t, const char *text, int64_t *bytes) {
    return NAME_t_trimmed(text, bytes, t->part[NAME_T_numbers][NAME_N_question]);
}

/* An answer as the chat template writes it before later questions: where it begins, and its bytes. Some
 * templates leave out thoughts, and white space. */
static inline const char *NAME_tokens_answer(const NAME_tokens *t, const char *text, int64_t *bytes) {
    const int32_t *numbers = t->part[NAME_T_numbers];
    int64_t size;
    const char *end = NAME_tokens_turn(t, 4, &size);
    for (int64_t at = *bytes - size; numbers[NAME_N_thoughts] && at >= 0; at--) {
        if (memcmp(text + at, end, (size_t)size) != 0) continue;
        text += at + size;
        *bytes -= at + size;
        for (; numbers[NAME_N_thoughts] == 2 && *bytes > 0 && *text == '\n'; --*bytes) text++;
        break;
    }
    return NAME_t_trimmed(text, bytes, numbers[NAME_N_answer]);
}

/* --- What follows is used by NAME_tokens_encode only. */

/* What a call works with: characters, their kinds, pieces as tokens, and states of expressions. */
typedef struct NAME_t_work {
    const NAME_tokens *t;
    int32_t *text, *normal, *kinds, *ids, *next, *last, *heap, *now, *then, *stack, *seen, *out;
    int64_t heap_size, count, most;
    int32_t step;
} NAME_t_work;

static inline int64_t NAME_t_number(const NAME_tokens *t, int which) {
    return t->part[NAME_T_numbers][which];
}

/* The last of the rows of a sorted table whose first words are not after these, or -1. */
static inline int64_t NAME_t_find(const NAME_tokens *t, int part, int width, int32_t a, int32_t b) {
    const int32_t *rows = t->part[part];
    int64_t low = 0, high = t->size[part] / width;
    while (low < high) {
        int64_t n = (low + high) / 2;
        const int32_t *row = rows + n * width;
        if (row[0] < a || (row[0] == a && (width < 3 || row[1] <= b))) low = n + 1;
        else high = n;
    }
    return low - 1;
}

/* The row of a sorted table that begins with these words, or null. */
static inline const int32_t *NAME_t_row(const NAME_tokens *t, int part, int width, int32_t a,
                                        int32_t b) {
    int64_t n = NAME_t_find(t, part, width, a, b);
    const int32_t *row = t->part[part] + (n < 0 ? 0 : n * width);
    return n >= 0 && row[0] == a && (width < 3 || row[1] == b) ? row : NULL;
}

/* The value of a character in a table of pairs, or `other`. */
static inline int32_t NAME_t_value(const NAME_tokens *t, int part, int32_t character, int32_t other) {
    const int32_t *row = NAME_t_row(t, part, 2, character, 0);
    return row == NULL ? other : row[1];
}

/* The bytes of a character. */
static inline int NAME_t_bytes(int32_t c, int32_t *bytes) {
    int size = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const int32_t first[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (int n = size - 1; n > 0; n--, c >>= 6) bytes[n] = 0x80 | (c & 0x3F);
    bytes[0] = first[size] | c;
    return size;
}

/* The characters of a text, or -1. */
static inline int64_t NAME_t_characters(const char *text, int64_t bytes, int32_t *out) {
    const unsigned char *at = (const unsigned char *)text, *end = at + bytes;
    int64_t count = 0;
    while (at < end) {
        int more = *at < 0x80 ? 0 : *at < 0xC2 ? -1 : *at < 0xE0 ? 1 : *at < 0xF0 ? 2 : *at < 0xF5 ? 3 : -1;
        if (more < 0 || more >= end - at) return -1;
        int32_t c = more == 0 ? *at : *at & (0x3F >> more);
        for (int n = 1; n <= more; n++) {
            if ((at[n] & 0xC0) != 0x80) return -1;
            c = c << 6 | (at[n] & 0x3F);
        }
        static const int32_t least[] = {0, 0x80, 0x800, 0x10000};
        if (c < least[more] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return -1;
        out[count++] = c;
        at += more + 1;
    }
    return count;
}

/* A text with U+FFFD for what is not UTF-8, as answers may begin or end within a character: its bytes, of
 * which there are up to 3 for each one, or a status. */
static inline int64_t NAME_tokens_valid(const char *text, int64_t bytes, char *out, int64_t most) {
    int64_t found = 0;
    for (int64_t at = 0, taken; at < bytes; at += taken) {
        unsigned char first = (unsigned char)text[at];
        char part[4];
        int32_t c[4];
        int64_t size = first < 0xC2 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
        for (taken = size < bytes - at ? size : bytes - at; taken > 0; taken--) { /* is it a start? */
            memset(part, 0x80, sizeof part);
            memcpy(part, text + at, (size_t)taken);
            if (NAME_t_characters(part, size, c) == 1) break;
        }
        int is_whole = taken == size;
        if (!is_whole) size = 3;
        if (size > most - found) return -3;
        memcpy(out + found, is_whole ? text + at : "\xEF\xBF\xBD", (size_t)size);
        found += size;
        if (taken == 0) taken = 1;
    }
    return found;
}

/* Append the decomposition of a character. */
static inline int64_t NAME_t_decomposed(const NAME_tokens *t, int32_t c, int32_t *out, int64_t count) {
    int32_t hangul[3], n = c - 0xAC00;
    const int32_t *parts = &c, *row = t->part[NAME_T_decomposed];
    int64_t size = 1, place = NAME_t_find(t, NAME_T_decomposed, 3, c, INT32_MAX);
    if (n >= 0 && n < 11172) {
        hangul[0] = 0x1100 + n / 588;
        hangul[1] = 0x1161 + n % 588 / 28;
        hangul[2] = 0x11A7 + n % 28;
        parts = hangul;
        size = n % 28 ? 3 : 2;
    } else if (place >= 0 && row[3 * place] == c) {
        parts = t->part[NAME_T_decompositions] + row[3 * place + 1];
        size = row[3 * place + 2];
    }
    for (int64_t k = 0; k < size; k++) out[count++] = parts[k];
    return count;
}

/* Put characters in the order of combining classes, between those that have none: class by class, as
 * there are few of them. `other` is memory for as many characters. */
static inline void NAME_t_order(const NAME_tokens *t, int32_t *text, int64_t size, int32_t *other) {
    for (int64_t start = 0, end; start < size; start = end + 1) {
        for (end = start; end < size && NAME_t_value(t, NAME_T_classes, text[end], 0) > 0;) end++;
        int64_t count = 0;
        for (int32_t last = 0; count < end - start;) {
            int32_t next = INT32_MAX;
            for (int64_t n = start; n < end; n++) {
                int32_t order = NAME_t_value(t, NAME_T_classes, text[n], 0);
                if (order > last && order < next) next = order;
            }
            for (int64_t n = start; n < end; n++)
                if (NAME_t_value(t, NAME_T_classes, text[n], 0) == next) other[count++] = text[n];
            last = next;
        }
        memcpy(text + start, other, 4 * (size_t)count);
    }
}

/* The character that two are together, or -1. */
static inline int32_t NAME_t_composed(const NAME_tokens *t, int32_t a, int32_t b) {
    if (a >= 0x1100 && a < 0x1113 && b >= 0x1161 && b < 0x1176)
        return 0xAC00 + (a - 0x1100) * 588 + (b - 0x1161) * 28;
    if (a >= 0xAC00 && a < 0xAC00 + 11172 && (a - 0xAC00) % 28 == 0 && b > 0x11A7 && b < 0x11C3)
        return a + b - 0x11A7;
    const int32_t *row = NAME_t_row(t, NAME_T_composed, 3, a, b);
    return row == NULL ? -1 : row[2];
}

/* Compose the characters of a text in place. */
static inline int64_t NAME_t_compose(const NAME_tokens *t, int32_t *text, int64_t size) {
    int64_t count = 0, starter = -1;
    int32_t last = 0; /* the class of the character before, if it is not composed */
    for (int64_t n = 0; n < size; n++) {
        int32_t order = NAME_t_value(t, NAME_T_classes, text[n], 0), both = -1;
        if (starter >= 0 && (count == starter + 1 || last < order))
            both = NAME_t_composed(t, text[starter], text[n]);
        if (both >= 0) {
            text[starter] = both;
            continue;
        }
        if (order == 0) starter = count;
        last = order;
        text[count++] = text[n];
    }
    return count;
}

/* The row of the longest text that is one token and begins here, or null. The texts are sorted: those
 * that begin alike, from `first` to `end`, are fewer with each character. */
static inline const int32_t *NAME_t_added(const NAME_tokens *t, int part, const int32_t *text,
                                          int64_t size) {
    const int32_t *rows = t->part[part], *texts = t->part[NAME_T_added_texts], *found = NULL;
    int64_t first = 0, end = t->size[part] / 3;
    for (int64_t n = 0; n < size && first < end; n++) {
        int64_t high = end;
        while (first < high) {
            int64_t middle = (first + high) / 2;
            if (texts[rows[3 * middle + 1] + n] < text[n]) first = middle + 1;
            else high = middle;
        }
        for (int64_t low = first; low < end;) {
            int64_t middle = (low + end) / 2;
            if (texts[rows[3 * middle + 1] + n] <= text[n]) low = middle + 1;
            else end = middle;
        }
        if (first < end && rows[3 * first + 2] == n + 1) found = rows + 3 * first++;
    }
    return found;
}

/* Append a token. */
static inline int NAME_t_emit(NAME_t_work *w, int32_t token) {
    if (w->count >= w->most) return -3;
    w->out[w->count++] = token;
    return 0;
}

/* 1 if entry a of the heap comes before entry b: by rank, then by place. */
static inline int NAME_t_before(const int32_t *a, const int32_t *b) {
    return a[0] < b[0] || (a[0] == b[0] && a[1] < b[1]);
}

static inline void NAME_t_swap(int32_t *a, int32_t *b) {
    for (int n = 0; n < 3; n++) {
        int32_t other = a[n];
        a[n] = b[n];
        b[n] = other;
    }
}

/* Note that the symbol at a place could be merged with the next one. */
static inline void NAME_t_push(NAME_t_work *w, int32_t place) {
    if (place < 0 || w->next[place] < 0) return;
    int32_t left = w->ids[place], right = w->ids[w->next[place]];
    const int32_t *row = NAME_t_row(w->t, NAME_T_merges, 4, left, right);
    if (row == NULL) return;
    int64_t n = w->heap_size++;
    int32_t *heap = w->heap;
    heap[3 * n] = row[2];
    heap[3 * n + 1] = place;
    heap[3 * n + 2] = row[3];
    for (; n > 0 && NAME_t_before(heap + 3 * n, heap + 3 * ((n - 1) / 2)); n = (n - 1) / 2)
        NAME_t_swap(heap + 3 * n, heap + 3 * ((n - 1) / 2));
}

/* Remove the first entry of the heap. */
static inline void NAME_t_pop(NAME_t_work *w, int32_t *first) {
    int32_t *heap = w->heap;
    int64_t size = --w->heap_size;
    memcpy(first, heap, 12);
    memcpy(heap, heap + 3 * size, 12);
    for (int64_t n = 0, child; (child = 2 * n + 1) < size; n = child) {
        if (child + 1 < size && NAME_t_before(heap + 3 * child + 3, heap + 3 * child)) child++;
        if (!NAME_t_before(heap + 3 * child, heap + 3 * n)) break;
        NAME_t_swap(heap + 3 * child, heap + 3 * n);
    }
}

/* The token whose bytes are a piece, or -1. */
static inline int32_t NAME_t_whole(const NAME_t_work *w, int64_t size) {
    const NAME_tokens *t = w->t;
    const int32_t *sorted = t->part[NAME_T_whole], *starts = t->part[NAME_T_starts];
    const unsigned char *texts = (const unsigned char *)t->part[NAME_T_texts];
    int64_t low = 0, high = t->size[NAME_T_whole];
    while (low < high) {
        int64_t middle = (low + high) / 2, n = 0;
        int32_t start = starts[sorted[middle]], length = starts[sorted[middle] + 1] - start;
        while (n < size && n < length && texts[start + n] == w->ids[n]) n++;
        if (n == size && n == length) return sorted[middle];
        if (n == length || (n < size && texts[start + n] < w->ids[n])) low = middle + 1;
        else high = middle;
    }
    return -1;
}

/* Append the tokens of a piece: symbols are merged, those that were learned first. */
static inline int NAME_t_merge(NAME_t_work *w, int64_t start, int64_t end) {
    const NAME_tokens *t = w->t;
    const int32_t *of_bytes = t->part[NAME_T_bytes];
    int32_t unknown = (int32_t)NAME_t_number(t, NAME_N_unknown), size = 0, was_unknown = 0;
    int has_characters = t->size[NAME_T_characters] > 0, has_bytes = t->size[NAME_T_bytes] > 0;
    for (int64_t n = start; n < end; n++) {
        int32_t token = -1;
        if (has_characters) token = NAME_t_value(t, NAME_T_characters, w->normal[n], -1);
        if (token >= 0) {
            w->ids[size++] = token;
            was_unknown = 0;
        } else if (has_bytes) {
            int count = NAME_t_bytes(w->normal[n], w->ids + size);
            for (int k = 0; has_characters && k < count; k++) w->ids[size + k] = of_bytes[w->ids[size + k]];
            size += count;
        } else if (unknown >= 0 && !(was_unknown && NAME_t_number(t, NAME_N_fuses))) {
            w->ids[size++] = unknown;
            was_unknown = 1;
        }
    }
    if (!has_characters) {
        int32_t token = NAME_t_whole(w, size);
        if (token >= 0) return NAME_t_emit(w, token);
        for (int32_t n = 0; n < size; n++) w->ids[n] = of_bytes[w->ids[n]];
    }
    w->heap_size = 0;
    for (int32_t n = 0; n < size; n++) {
        w->last[n] = n - 1;
        w->next[n] = n + 1 < size ? n + 1 : -1;
    }
    for (int32_t n = 0; n < size; n++) NAME_t_push(w, n);
    while (w->heap_size > 0) {
        int32_t entry[3];
        NAME_t_pop(w, entry);
        int32_t place = entry[1], other;
        if (w->ids[place] < 0 || (other = w->next[place]) < 0) continue;
        const int32_t *row = NAME_t_row(t, NAME_T_merges, 4, w->ids[place], w->ids[other]);
        if (row == NULL || row[3] != entry[2]) continue; /* one of them has changed since */
        w->ids[place] = entry[2];
        w->ids[other] = -1;
        w->next[place] = w->next[other];
        if (w->next[place] >= 0) w->last[w->next[place]] = place;
        NAME_t_push(w, w->last[place]);
        NAME_t_push(w, place);
    }
    for (int32_t n = 0; n < size; n++)
        if (w->ids[n] >= 0 && NAME_t_emit(w, w->ids[n])) return -3;
    return 0;
}

/* 1 if the character at a place, of which there is one, is in a set. */
static inline int NAME_t_is_in(const NAME_t_work *w, int32_t set, int64_t at, int64_t end) {
    const int32_t *sets = w->t->part[NAME_T_sets];
    return at < end && sets[set * NAME_t_number(w->t, NAME_N_kinds) + w->kinds[at]];
}

/* Begin a step of an expression, in which no state has been seen. */
static inline void NAME_t_begin(NAME_t_work *w) {
    if (w->step++ < INT32_MAX - 1) return;
    memset(w->seen, 0, 4 * (size_t)(w->t->size[NAME_T_program] / 3));
    w->step = 1;
}

/* Add the states that are reached from one without a character, those that are preferred first. */
static inline int64_t NAME_t_reach(NAME_t_work *w, int32_t *states, int64_t count, int32_t state,
                                   int64_t at, int64_t end) {
    const int32_t *program = w->t->part[NAME_T_program];
    int64_t left = 0;
    w->stack[left++] = state;
    while (left > 0) {
        state = w->stack[--left];
        if (w->seen[state] == w->step) continue;
        w->seen[state] = w->step;
        const int32_t *code = program + 3 * state;
        if (code[0] == NAME_EITHER) {
            w->stack[left++] = code[2];
            w->stack[left++] = code[1];
        } else if (code[0] == NAME_AHEAD) {
            if (NAME_t_is_in(w, code[1], at, end) == code[2]) w->stack[left++] = state + 1;
        } else {
            states[count++] = state;
        }
    }
    return count;
}

/* The end of what an expression finds at a place, or -1. */
static inline int64_t NAME_t_match(NAME_t_work *w, int32_t first, int64_t at, int64_t end) {
    const int32_t *program = w->t->part[NAME_T_program];
    int64_t found = -1, count;
    NAME_t_begin(w);
    count = NAME_t_reach(w, w->now, 0, first, at, end);
    while (count > 0) {
        int64_t others = 0;
        NAME_t_begin(w);
        for (int64_t n = 0; n < count; n++) {
            const int32_t *code = program + 3 * w->now[n];
            if (code[0] == NAME_FOUND) {
                found = at;
                break; /* what is left is less preferred */
            }
            if (NAME_t_is_in(w, code[1], at, end))
                others = NAME_t_reach(w, w->then, others, w->now[n] + 1, at + 1, end);
        }
        int32_t *now = w->now;
        w->now = w->then;
        w->then = now;
        count = others;
        at++;
    }
    return found;
}

/* Append the tokens of a part of a text that expressions split, from one of them on. */
static inline int NAME_t_split(NAME_t_work *w, int64_t level, int64_t start, int64_t end) {
    if (level == w->t->size[NAME_T_splits]) return NAME_t_merge(w, start, end);
    int32_t first = w->t->part[NAME_T_splits][level];
    int64_t at = start;
    int status = 0;
    while (at < end && status == 0) {
        int64_t stop = NAME_t_match(w, first, at, end);
        if (stop <= at) {
            at++;
            continue;
        }
        if (start < at) status = NAME_t_split(w, level + 1, start, at);
        if (status == 0) status = NAME_t_split(w, level + 1, at, stop);
        at = start = stop;
    }
    return status == 0 && start < end ? NAME_t_split(w, level + 1, start, end) : status;
}

/* Append the tokens of characters between texts that are one token. */
static inline int NAME_t_segment(NAME_t_work *w, int64_t start, int64_t end) {
    const NAME_tokens *t = w->t;
    int64_t size = 1, begin = 1, at = 1; /* one before is free */
    int64_t form = NAME_t_number(t, NAME_N_form), prefix = NAME_t_number(t, NAME_N_prefix);
    int32_t *text = w->normal, space = NAME_t_number(t, NAME_N_spaces) ? @SPACE@ : ' ';
    int status = 0;
    if (start == end) return 0;
    if (prefix == 1) text[size++] = space;
    for (int64_t n = start; n < end; n++) {
        if (form > 0) size = 1 + NAME_t_decomposed(t, w->text[n], text + 1, size - 1);
        else text[size++] = w->text[n] == ' ' && prefix < 2 ? space : w->text[n];
    }
    if (form > 0) NAME_t_order(t, text + 1, size - 1, w->ids);
    if (form == 2) size = 1 + NAME_t_compose(t, text + 1, size - 1);
    for (int64_t n = 1; t->size[NAME_T_splits] > 0 && n < size; n++)
        w->kinds[n] = t->part[NAME_T_ranges][2 * NAME_t_find(t, NAME_T_ranges, 2, text[n], 0) + 1];
    while (status == 0 && at <= size) {
        const int32_t *row = NAME_t_added(t, NAME_T_normal_added, text + at, size - at);
        if (row == NULL && at < size) {
            at++;
            continue;
        }
        if (begin < at) {
            for (int64_t n = begin; prefix > 1 && n < at; n++)
                if (text[n] == ' ') text[n] = space;
            int is_first = start == 0 && begin == 1;
            if ((prefix == 2 || (prefix == 3 && is_first)) && text[begin] != space) text[--begin] = space;
            status = NAME_t_split(w, 0, begin, at);
        }
        if (row == NULL) break;
        if (status == 0) status = NAME_t_emit(w, row[0]);
        begin = at += row[2];
    }
    return status;
}

/* The most tokens that a text of so many bytes has. One in two bytes may be a text between two tokens,
 * before which there is a space that is a token. */
static inline int64_t NAME_tokens_most(const NAME_tokens *t, int64_t bytes) {
    return bytes * NAME_t_number(t, NAME_N_growth) + bytes / 2 + 4 + t->size[NAME_T_first];
}

/* The bytes of memory that a call for a text of so many bytes needs, or a status. */
static inline int64_t NAME_tokens_workspace(const NAME_tokens *t, int64_t bytes) {
    int64_t growth = NAME_t_number(t, NAME_N_growth), states = t->size[NAME_T_program] / 3;
    if (bytes < 0 || bytes > INT32_MAX / (16 * growth)) return -4;
    return 4 * (bytes + 11 * (bytes * growth + 4) + 5 * states);
}

/* The tokens of a text: their number, or a status. With `begins`, the tokens come first that begin
 * a text outside of conversations. `most` is the number of those that there is memory for. */
static inline int64_t NAME_tokens_encode(const NAME_tokens *t, const char *text, int64_t bytes, int begins,
                                         int32_t *tokens, int64_t most, void *workspace) {
    int64_t needed = NAME_tokens_workspace(t, bytes), states = t->size[NAME_T_program] / 3;
    if (needed < 0) return needed;
    int64_t most_normal = bytes * NAME_t_number(t, NAME_N_growth) + 4, start = 0, at = 0;
    NAME_t_work w;
    memset(&w, 0, sizeof w);
    w.t = t;
    w.text = (int32_t *)workspace;
    w.normal = w.text + bytes;
    w.kinds = w.normal + most_normal;
    w.ids = w.kinds + most_normal;
    w.next = w.ids + most_normal;
    w.last = w.next + most_normal;
    w.heap = w.last + most_normal;
    w.now = w.heap + 6 * most_normal;
    w.then = w.now + states;
    w.seen = w.then + states;
    w.stack = w.seen + states;
    w.out = tokens;
    w.most = most;
    if (states > 0) memset(w.seen, 0, 4 * (size_t)states);
    int64_t size = NAME_t_characters(text, bytes, w.text);
    if (size < 0) return -2;
    int status = 0;
    for (int64_t n = 0; begins && n < t->size[NAME_T_first] && status == 0; n++)
        status = NAME_t_emit(&w, t->part[NAME_T_first][n]);
    while (status == 0 && at <= size) {
        const int32_t *row = NAME_t_added(t, NAME_T_added, w.text + at, size - at);
        if (row == NULL && at < size) {
            at++;
            continue;
        }
        status = NAME_t_segment(&w, start, at);
        if (row == NULL) break;
        if (status == 0) status = NAME_t_emit(&w, row[0]);
        start = at += row[2];
    }
    return status ? status : w.count;
}

#endif /* @GUARD@ */
