"""A small pool of POSIX threads in C, for callers of exported programs that have none."""

from __future__ import annotations

from typing import Final

_TEXT: Final = """\
/* A pool of POSIX threads for NAME.h: link with -pthread.
 *
 *     NAME_pool pool;
 *     NAME_threads threads;
 *     if (NAME_pool_start(&pool, 4, &threads) == 0) {
 *         inputs.threads = &threads;
 *         ...
 *         NAME_pool_stop(&pool);
 *     }
 *
 * Calls that run at the same time need a pool each. */
#ifndef GUARD
#define GUARD

#include <pthread.h>
#include <stdint.h>

#include "NAME.h"

enum { NAME_POOL_MOST = 64 };

typedef struct NAME_pool {
    pthread_t workers[NAME_POOL_MOST];
    pthread_mutex_t lock;
    pthread_cond_t begins, ends;
    void (*task)(void *work, int64_t n, int64_t thread);
    void *work;
    int64_t next[NAME_POOL_MOST], end[NAME_POOL_MOST]; /* the tasks that each thread has left */
    int64_t started, running, loops;
    int count, stops;
} NAME_pool;

/* The number of a task: from the front of the thread's own, as neighbours read the same rows, or
 * from the back of another's; -1 if none is left. */
static inline int64_t NAME_pool_next(NAME_pool *pool, int64_t thread) {
    if (pool->next[thread] < pool->end[thread]) return pool->next[thread]++;
    for (int i = 0; i < pool->count; i++)
        if (pool->next[i] < pool->end[i]) return --pool->end[i];
    return -1;
}

/* Run tasks until there are no more; the lock is held before and after. */
static inline void NAME_pool_run(NAME_pool *pool, int64_t thread) {
    int64_t n;
    while ((n = NAME_pool_next(pool, thread)) >= 0) {
        void (*task)(void *, int64_t, int64_t) = pool->task;
        void *work = pool->work;
        pthread_mutex_unlock(&pool->lock);
        task(work, n, thread);
        pthread_mutex_lock(&pool->lock);
    }
}

static inline void *NAME_pool_work(void *argument) {
    NAME_pool *pool = (NAME_pool *)argument;
    int64_t seen = 0, thread;
    pthread_mutex_lock(&pool->lock);
    thread = ++pool->started;
    while (!pool->stops) {
        if (seen == pool->loops) {
            pthread_cond_wait(&pool->begins, &pool->lock);
            continue;
        }
        seen = pool->loops;
        pool->running++;
        NAME_pool_run(pool, thread);
        if (--pool->running == 0) pthread_cond_signal(&pool->ends);
    }
    pthread_mutex_unlock(&pool->lock);
    return 0;
}

static inline void NAME_pool_for(void *owner, void (*task)(void *, int64_t, int64_t), void *work,
                                 int64_t tasks) {
    NAME_pool *pool = (NAME_pool *)owner;
    pthread_mutex_lock(&pool->lock);
    pool->task = task;
    pool->work = work;
    for (int64_t i = 0; i < pool->count; i++) {
        pool->next[i] = tasks * i / pool->count;
        pool->end[i] = tasks * (i + 1) / pool->count;
    }
    pool->loops++;
    if (tasks > 1) pthread_cond_broadcast(&pool->begins);
    NAME_pool_run(pool, 0);
    while (pool->running) pthread_cond_wait(&pool->ends, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

static inline void NAME_pool_stop(NAME_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->stops = 1;
    pthread_cond_broadcast(&pool->begins);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i + 1 < pool->count; i++) pthread_join(pool->workers[i], 0);
    pthread_cond_destroy(&pool->begins);
    pthread_cond_destroy(&pool->ends);
    pthread_mutex_destroy(&pool->lock);
}

/* Start count - 1 threads, as the caller is one of them: 0, or an error of pthread_create. */
static inline int NAME_pool_start(NAME_pool *pool, int count, NAME_threads *threads) {
    int status = 0;
    pool->started = pool->running = pool->loops = 0;
    pool->stops = 0;
    pthread_mutex_init(&pool->lock, 0);
    pthread_cond_init(&pool->begins, 0);
    pthread_cond_init(&pool->ends, 0);
    if (count < 1) count = 1;
    if (count > NAME_POOL_MOST) count = NAME_POOL_MOST;
    for (pool->count = 1; pool->count < count && status == 0; pool->count++)
        status = pthread_create(&pool->workers[pool->count - 1], 0, NAME_pool_work, pool);
    if (status) {
        pool->count--;
        NAME_pool_stop(pool);
        return status;
    }
    threads->parallel_for = NAME_pool_for;
    threads->owner = pool;
    threads->count = count;
    return 0;
}

#endif
"""


def pool_of(name: str) -> str:
    """The text of the header `NAME_pool.h` of a program."""
    return _TEXT.replace("GUARD", f"{name.upper()}_POOL_H").replace("NAME", name)
