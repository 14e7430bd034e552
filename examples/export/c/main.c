/* Reads handwritten digits with a model that relaxpy has written as a library: see README.md. */

#include <stdio.h>
#include <stdlib.h>

#include "digits.h"

enum { PIXELS = 64, DIGITS = 10, RECORD = PIXELS + 1 };

/* The numbers of a file of float32, and their count; null if it cannot be read. */
static float *read_numbers(const char *path, size_t *count) {
    FILE *file = fopen(path, "rb");
    float *numbers = NULL;
    long size;
    if (file == NULL) return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) > 0) {
        rewind(file);
        *count = (size_t)size / sizeof(float);
        numbers = malloc((size_t)size);
        if (numbers != NULL && fread(numbers, sizeof(float), *count, file) != *count) {
            free(numbers);
            numbers = NULL;
        }
    }
    fclose(file);
    return numbers;
}

static void show(const float *picture, int64_t label, float probability, int expected) {
    for (int row = 0; row < 8; row++) {
        for (int column = 0; column < 8; column++) {
            int shade = (int)(picture[8 * row + column] * 4.99f);
            printf("%c%c", " .+#@"[shade], " .+#@"[shade]);
        }
        putchar('\n');
    }
    printf("a %lld, with %.0f %%; it is a %d\n\n", (long long)label, 100 * probability, expected);
}

int main(void) {
    size_t numbers = 0;
    float *records = read_numbers("pictures.bin", &numbers);
    int64_t count = (int64_t)(numbers / RECORD), right = 0;
    float *pixels, *probabilities;
    int64_t *labels;
    void *workspace;
    int64_t bytes;
    int32_t status;

    if (records == NULL || count == 0) {
        fprintf(stderr, "pictures.bin cannot be read: run make\n");
        return 1;
    }

    /* The memory of the call is that of its caller. Sizes are fields of the inputs. */
    digits_main_inputs inputs = {.n = count};
    digits_main_outputs outputs = {0};
    bytes = digits_main_workspace(&inputs);
    if (bytes < 0) {
        fprintf(stderr, "%s\n", digits_error((int32_t)bytes));
        return 1;
    }
    pixels = malloc((size_t)count * PIXELS * sizeof *pixels);
    probabilities = malloc((size_t)count * DIGITS * sizeof *probabilities);
    labels = malloc((size_t)count * sizeof *labels);
    workspace = malloc((size_t)bytes);
    if (pixels == NULL || probabilities == NULL || labels == NULL || workspace == NULL) {
        fprintf(stderr, "there is not enough memory\n");
        return 1;
    }
    for (int64_t i = 0; i < count; i++)
        for (int j = 0; j < PIXELS; j++) pixels[PIXELS * i + j] = records[RECORD * i + j];

    inputs.x = pixels;
    inputs.workspace_bytes = bytes;
    outputs.result0 = probabilities;
    outputs.result1 = labels;
    status = digits_main(&inputs, &outputs, workspace);
    if (status != 0) {
        fprintf(stderr, "%s\n", digits_error(status));
        return 1;
    }

    for (int64_t i = 0; i < count; i++) {
        int expected = (int)records[RECORD * i + PIXELS];
        right += labels[i] == expected;
        if (i < 3) {
            float probability = probabilities[DIGITS * i + labels[i]];
            show(pixels + PIXELS * i, labels[i], probability, expected);
        }
    }
    printf("%lld of %lld pictures are read right\n", (long long)right, (long long)count);
    free(workspace);
    free(labels);
    free(probabilities);
    free(pixels);
    free(records);
    return 0;
}
