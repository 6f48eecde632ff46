// How a scene waits: for an event, and never for a time. PATIENCE only ends a hang. NEVER is for what must not expire, such as a session or
// a lock, and is much longer: were both the same, what expires could pass for what the scene waits for. EXPIRES is for a call that must
// end in vain, because what it waits for cannot come: a slow machine only makes it longer.

import java.time.Duration;
import java.util.concurrent.Callable;

public final class Waiting {
    static final int PATIENCE_MS = 120_000;
    static final int NEVER_MS = 4 * PATIENCE_MS;
    static final Duration PATIENCE = Duration.ofMillis(PATIENCE_MS);
    static final Duration EXPIRES = Duration.ofMillis(500);
    static final Duration ASK = Duration.ofMillis(50);  // For one poll of a client, which is asked again when it brings nothing.

    /** Looks again and again; whoever has something better to do between two looks does it in the claim. */
    static void until(String what, Callable<Boolean> claim) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!claim.call()) {
            if (System.nanoTime() > deadline) throw new IllegalStateException("not within " + PATIENCE.toSeconds() + " s: " + what);
            Thread.sleep(5);
        }
    }
}
