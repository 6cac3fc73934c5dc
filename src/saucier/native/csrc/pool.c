/* Threads that help with one pass at a time, and sleep between passes.
 *
 * A pass is a row of tasks, each cut into chunks; whoever is free takes the next chunk, so that a thread that the system has
 * put aside delays nobody. Number of the task, chunks and next chunk are one 64-bit word, which a claim replaces as a whole: a
 * late thread cannot mix up two tasks, nor take part in a pass that it is not invited to. Helpers wait actively inside a pass
 * only (with yields, so that another process on their core can work); between passes they sleep, beside torch's own threads.
 * Threads do not survive a fork: the child finds another process id and starts its own. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "saucier.h"

#if defined(__x86_64__) || defined(__i386__)
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE() ((void)0)
#endif
#define CHUNK_BITS 20
#define CHUNK_MASK ((1u << CHUNK_BITS) - 1)
#define PATIENCE 4000 /* checks before a thread yields: some tens of microseconds */

static struct {
    pthread_mutex_t busy, door;
    pthread_cond_t open;
    pid_t owner;
    int started, invited; /* threads that exist; those that take part in this pass */
    long pass;            /* number of the pass, changed behind the door */
    _Atomic long running; /* the present pass; 0: none */
    _Atomic uint64_t ticket; /* task number << 40 | chunks << 20 | next chunk */
    _Atomic int64_t done;
    Task *task;
    void *argument;
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER, .door = PTHREAD_MUTEX_INITIALIZER, .open = PTHREAD_COND_INITIALIZER};
static _Thread_local int inside; /* threads of the pass that this thread leads; 0: none */

/* Take chunks of the present task of a pass until there is none left; say whether there was one. */
static int help(int thread, long pass) {
    int found = 0;
    for (;;) {
        uint64_t seen = atomic_load_explicit(&pool.ticket, memory_order_acquire);
        if ((seen & CHUNK_MASK) >= (seen >> CHUNK_BITS & CHUNK_MASK)) return found;
        /* A ticket of a later pass was published after its number. */
        if (atomic_load_explicit(&pool.running, memory_order_acquire) != pass) return found;
        if (!atomic_compare_exchange_weak_explicit(&pool.ticket, &seen, seen + 1, memory_order_acquire, memory_order_relaxed))
            continue;
        pool.task(pool.argument, (int64_t)(seen & CHUNK_MASK), thread);
        atomic_fetch_add_explicit(&pool.done, 1, memory_order_release);
        found = 1;
    }
}

static void *serve(void *number) {
    int thread = (int)(intptr_t)number;
    long served = 0;
    for (;;) {
        pthread_mutex_lock(&pool.door);
        while (pool.pass == served || thread >= pool.invited || !atomic_load(&pool.running)) {
            served = pool.pass;
            pthread_cond_wait(&pool.open, &pool.door);
        }
        served = pool.pass;
        pthread_mutex_unlock(&pool.door);
        for (int idle = 0; atomic_load_explicit(&pool.running, memory_order_acquire) == served;) {
            if (help(thread, served)) idle = 0;
            else if (++idle % PATIENCE == 0) sched_yield();
            else PAUSE();
        }
    }
    return NULL;
}

static void start_threads(int wanted) {
    if (pool.owner != getpid()) { /* the first pass of this process, or of a forked child */
        pthread_mutex_init(&pool.door, NULL);
        pthread_cond_init(&pool.open, NULL);
        pool.owner = getpid();
        pool.started = 1;
        atomic_store(&pool.running, 0);
    }
    while (pool.started < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)pool.started)) break; /* fewer then */
        pthread_detach(thread);
        pool.started++;
    }
}

static void forget_lock(void) { pthread_mutex_init(&pool.busy, NULL); }
static void register_fork(void) { pthread_atfork(NULL, NULL, forget_lock); }

/* Begin a pass; return how many threads take part. Where another thread leads one already, it goes on alone. */
int saucier_enter(int threads) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork);
    inside = 0;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads < 2 || pthread_mutex_trylock(&pool.busy)) return 1;
    start_threads(threads);
    inside = pool.started < threads ? pool.started : threads;
    pthread_mutex_lock(&pool.door);
    pool.pass++;
    pool.invited = inside;
    atomic_store_explicit(&pool.running, pool.pass, memory_order_release);
    pthread_cond_broadcast(&pool.open);
    pthread_mutex_unlock(&pool.door);
    return inside;
}

void saucier_leave(void) {
    if (!inside) return;
    inside = 0;
    atomic_store_explicit(&pool.running, 0, memory_order_release);
    pthread_mutex_unlock(&pool.busy);
}

/* Run all chunks of a task and return when they are done. */
void saucier_parallel(int threads, int64_t chunks, Task *task, void *argument) {
    if (threads < 2 || chunks < 2 || !inside || chunks > (int64_t)CHUNK_MASK - MOST_THREADS) {
        for (int64_t chunk = 0; chunk < chunks; chunk++) task(argument, chunk, 0);
        return;
    }
    pool.task = task;
    pool.argument = argument;
    atomic_store_explicit(&pool.done, 0, memory_order_relaxed);
    uint64_t number = atomic_load_explicit(&pool.ticket, memory_order_relaxed) >> (2 * CHUNK_BITS);
    atomic_store_explicit(&pool.ticket, (number + 1) << (2 * CHUNK_BITS) | (uint64_t)chunks << CHUNK_BITS,
                          memory_order_release);
    help(0, pool.pass);
    for (int idle = 0; atomic_load_explicit(&pool.done, memory_order_acquire) < chunks;)
        if (++idle % PATIENCE == 0) sched_yield();
        else PAUSE();
}
