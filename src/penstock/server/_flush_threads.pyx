# cython: language_level=3, embedsignature=False
"""The compiled threads that flush files. `flush_threads` says what they promise.

Each has a place of its own: it sleeps on a semaphore, flushes the file that it finds in its place, leaves the outcome there, and then makes
the descriptor readable that an event loop watches. Nothing here touches a Python object outside the caller's own thread.
"""

import errno
import os

from libc.stdint cimport uint64_t

cdef enum:
    PLACES = 4  # With more files syncfs is quicker: measured with the kernel's own workers, which take as long for each.

cdef extern from *:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <semaphore.h>
    #include <signal.h>
    #include <stdint.h>
    #include <unistd.h>

    #define FLUSH_STACK_BYTES (64 * 1024)

    typedef struct {
        sem_t wanted;
        pthread_t thread;
        int told;      /* The descriptor. */
        int fd;        /* To be flushed next, */
        int is_asked;  /* if this says so. */
        int ends;
        int code;      /* What became of it, */
        int is_over;   /* once this says so. */
    } FlushPlace;

    static void *flush_on_demand(void *given) {
        FlushPlace *place = given;
        const uint64_t one = 1;
        for (;;) {
            while (sem_wait(&place->wanted) != 0) {}
            int failed;
            if (!place->is_asked) {
                if (place->ends) return NULL;
                continue;
            }
            place->is_asked = 0;
            do failed = fdatasync(place->fd); while (failed && errno == EINTR);
            place->code = failed ? errno : 0;
            __atomic_store_n(&place->is_over, 1, __ATOMIC_RELEASE);
            while (write(place->told, &one, sizeof one) < 0 && errno == EINTR) {}
        }
    }

    static int place_open(FlushPlace *place, int told) {
        /* Signals are for the threads that know what to do with them. */
        sigset_t all, before;
        pthread_attr_t how;
        int code;
        place->told = told;
        place->is_asked = place->ends = place->is_over = 0;
        if (sem_init(&place->wanted, 0, 0) != 0) return errno;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        pthread_attr_init(&how);
        pthread_attr_setstacksize(&how, FLUSH_STACK_BYTES);
        code = pthread_create(&place->thread, &how, flush_on_demand, place);
        pthread_attr_destroy(&how);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (code != 0) sem_destroy(&place->wanted);
        return code;
    }

    static void place_ask(FlushPlace *place, int fd) {
        place->fd = fd;
        place->is_asked = 1;
        sem_post(&place->wanted);
    }

    static int place_is_over(FlushPlace *place) {
        if (!__atomic_load_n(&place->is_over, __ATOMIC_ACQUIRE)) return 0;
        place->is_over = 0;
        return 1;
    }

    static void place_close(FlushPlace *place) {
        place->ends = 1;
        sem_post(&place->wanted);  /* After what was asked for before. */
        pthread_join(place->thread, NULL);
        sem_destroy(&place->wanted);
    }
    """
    int close(int fd)
    ssize_t read(int fd, void *into, size_t size)
    ctypedef struct FlushPlace:
        int code
    int place_open(FlushPlace *place, int told)
    void place_ask(FlushPlace *place, int fd)
    bint place_is_over(FlushPlace *place)
    void place_close(FlushPlace *place) nogil


FILES_MAX = PLACES


cdef class FlushThreads:
    cdef FlushPlace _places[PLACES]
    cdef int _threads
    cdef readonly int told

    def __cinit__(self):
        cdef int code
        self.told = -1
        self.told = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        while self._threads < PLACES:
            code = place_open(&self._places[self._threads], self.told)
            if code != 0:
                raise OSError(code, os.strerror(code))
            self._threads += 1

    def __dealloc__(self):
        self._end()

    def begin(self, fds):
        cdef int place = 0
        if len(fds) > self._threads:
            raise OSError(errno.EAGAIN, f"{len(fds)} files for {self._threads} threads")
        for fd in fds:
            place_ask(&self._places[place], fd)
            place += 1

    def ended(self):
        cdef int place
        cdef uint64_t times
        cdef list found = []
        if read(self.told, &times, sizeof(times)) < 0:  # First: what it tells of can be seen then.
            return found  # Nothing was told, or it is closed.
        for place in range(self._threads):
            if place_is_over(&self._places[place]):
                found.append((place, self._places[place].code))
        return found

    def close(self):
        self._end()

    cdef void _end(self):
        while self._threads:
            self._threads -= 1
            with nogil:
                place_close(&self._places[self._threads])
        if self.told >= 0:
            close(self.told)
            self.told = -1
