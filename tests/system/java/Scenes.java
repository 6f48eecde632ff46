// What the programs that play Apache Kafka's Java clients share: scenes by name, several at once, one line of outcome each.
// A program extends it, adds its scenes and plays them. Prints "scene<TAB>ok" or "scene<TAB>what went wrong".

import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.Admin;

public class Scenes {
    interface Scene { void play() throws Exception; }

    static String bootstrap;
    static Admin admin;
    private static final Map<String, Scene> scenes = new LinkedHashMap<>();

    static void begin(String address) {
        bootstrap = address;
        admin = Admin.create(Map.<String, Object>of("bootstrap.servers", address));
    }

    static void scene(String name, Scene scene) {
        scenes.put(name, scene);
    }

    /** Mostly they wait for a broker, each with topics and groups of its own, so that several do well side by side. */
    static void playAll(int atOnce) throws Exception {
        ExecutorService stage = Executors.newFixedThreadPool(atOnce);
        scenes.forEach((name, scene) -> stage.execute(() -> play(name, scene)));
        stage.shutdown();
        stage.awaitTermination(1, TimeUnit.HOURS);
        System.exit(0);
    }

    private static void play(String name, Scene scene) {
        try {
            scene.play();
            System.out.println(name + "\tok");
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.out.println(name + "\t" + failure);
        }
    }

    static void claim(boolean holds, Object what) {
        if (!holds) throw new IllegalStateException("not so: " + what);
    }

    static String unique(String name) {
        return name + "-" + UUID.randomUUID().toString().substring(0, 8);
    }
}
