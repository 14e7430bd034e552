/* Talks with a language model that relaxpy has written as a library: see README.md. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "chat.h"
#include "chat_pool.h"
#include "chat_tokens.h"

enum { MOST_BYTES = 64 * 1024, MOST_OF_ANSWER = CHAT_CONTEXT / 4, THREADS = 4 };

static char text[MOST_BYTES]; /* the conversation */
static int64_t length;
static int32_t tokens[CHAT_CONTEXT]; /* those of its text, of which the first ones are in the cache */
static int64_t count;
static float logits[CHAT_VOCABULARY];

static void *mapped(const char *path, int64_t *bytes) {
    struct stat about;
    int file = open(path, O_RDONLY);
    void *found = MAP_FAILED;
    if (file >= 0 && fstat(file, &about) == 0) {
        *bytes = about.st_size;
        found = mmap(NULL, (size_t)*bytes, PROT_READ, MAP_SHARED, file, 0);
    }
    if (found == MAP_FAILED) fprintf(stderr, "%s cannot be read\n", path), exit(1);
    return found;
}

static void check(int64_t status, const char *about) {
    if (status < 0 || (status > 0 && about != NULL)) {
        fprintf(stderr, "%s\n", about != NULL ? about : chat_tokens_error(status));
        exit(1);
    }
}

/* Compute the scores after the tokens from a position on. */
static void read_tokens(chat_prefill_inputs *in, int64_t position, void *workspace) {
    chat_prefill_outputs out = {.logits = logits};
    in->ids = tokens + position;
    in->n = count - position;
    in->position = position;
    int32_t status = chat_prefill(in, &out, workspace);
    check(status, chat_error(status));
}

/* Append bytes to the text of the conversation. */
static void append(const char *part, int64_t bytes) {
    check(bytes > MOST_BYTES - length ? -3 : 0, NULL);
    if (bytes > 0) memcpy(text + length, part, (size_t)bytes);
    length += bytes;
}

/* Append what the chat template writes around messages; nothing if there is none. */
static void append_turn(const chat_tokens *tokenizer, int which) {
    int64_t bytes;
    const char *part = chat_tokens_turn(tokenizer, which, &bytes);
    append(part, bytes);
}

/* The tokens of the conversation: their number. The first `same` of them are in the cache. */
static int64_t read_text(const chat_tokens *tokenizer, int begins, void *memory, int64_t *same) {
    static int32_t found[CHAT_CONTEXT];
    int64_t size = chat_tokens_encode(tokenizer, text, length, begins, found, CHAT_CONTEXT, memory);
    check(size, NULL);
    for (*same = 0; *same < count && *same < size - 1 && found[*same] == tokens[*same];) ++*same;
    memcpy(tokens, found, sizeof found);
    return size;
}

int main(void) {
    int64_t weights_bytes, tables_bytes, bytes;
    const void *weights = mapped("chat.weights", &weights_bytes);
    const void *tables = mapped("chat.tokens", &tables_bytes);
    chat_tokens tokenizer;
    check(chat_tokens_open(&tokenizer, tables, tables_bytes), NULL);

    chat_pool pool;
    chat_threads threads;
    if (chat_pool_start(&pool, THREADS, &threads) != 0) return 1;
    chat_prefill_inputs in = {.weights = weights, .weights_bytes = weights_bytes, .threads = &threads};
    in.keys = calloc(CHAT_CACHE, sizeof *in.keys);
    in.values = calloc(CHAT_CACHE, sizeof *in.values);
    in.n = CHAT_CONTEXT; /* which needs the most memory */
    void *workspace = malloc((size_t)chat_prefill_workspace(&in));
    void *memory = malloc((size_t)chat_tokens_workspace(&tokenizer, MOST_BYTES));
    if (!in.keys || !in.values || !workspace || !memory) return 1;

    static char line[4096], answer[MOST_BYTES], valid[MOST_BYTES];
    int has_turns = chat_tokens_turn(&tokenizer, 0, &bytes) != NULL;
    while (printf("> "), fflush(stdout), fgets(line, sizeof line, stdin) != NULL) {
        int64_t position, written = 0, asked;
        append_turn(&tokenizer, length > 0);
        bytes = (int64_t)strcspn(line, "\n");
        const char *question = chat_tokens_question(&tokenizer, line, &bytes);
        append(question, bytes);
        asked = length;
        append_turn(&tokenizer, 2);
        count = read_text(&tokenizer, !has_turns, memory, &position);
        for (int n = 0; position < count; n++) {
            int32_t best = 0;
            read_tokens(&in, position, workspace);
            for (int32_t word = 1; word < CHAT_VOCABULARY; word++)
                if (logits[word] > logits[best]) best = word;
            position = count;
            if (n == MOST_OF_ANSWER || count == CHAT_CONTEXT) break;
            if (chat_tokens_is_end(&tokenizer, best)) break;
            const char *piece = chat_tokens_text(&tokenizer, best, &bytes);
            fwrite(piece, 1, (size_t)bytes, stdout), fflush(stdout);
            check(bytes > MOST_BYTES - written ? -3 : 0, NULL);
            memcpy(answer + written, piece, (size_t)bytes);
            written += bytes;
            tokens[count++] = best;
        }
        length = asked; /* later questions come after the answer as the template shows it */
        append_turn(&tokenizer, 3);
        bytes = chat_tokens_valid(answer, written, valid, MOST_BYTES);
        check(bytes, NULL);
        const char *shown = chat_tokens_answer(&tokenizer, valid, &bytes);
        append(shown, bytes);
        putchar('\n');
    }
    chat_pool_stop(&pool);
    return 0;
}
