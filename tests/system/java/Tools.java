// Apache Kafka's command-line tools, one after the other in one process, because each would take a second to start.
// A line on standard input is a class and its arguments, with tabs between. Its answer is a line with the exit code and a count of
// characters, and then as many of them: what the tool printed.

import java.io.*;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

public class Tools {
    /** What a tool meets where it would end the process. Some catch it and end again, with other words: the first end counts. */
    static class Ended extends Error {}

    static final ByteArrayOutputStream out = new ByteArrayOutputStream(), errors = new ByteArrayOutputStream();
    static String answer;

    public static void main(String[] none) throws IOException {
        Exit.setExitProcedure((code, message) -> {
            end(code);
            throw new Ended();
        });
        PrintStream answers = System.out;
        System.setOut(new PrintStream(out, true));  // Once for all: Scala remembers the first one that it meets.
        System.setErr(new PrintStream(errors, true));
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = asked.readLine()) != null; answer = null) {
            String[] words = line.split("\t");
            run(words[0], Arrays.copyOfRange(words, 1, words.length));
            answers.print(answer);
            answers.flush();
            out.reset();
            errors.reset();
        }
        System.exit(0);
    }

    static void end(int code) {
        if (answer != null) return;
        String told = code == 0 ? out.toString() : out.toString() + errors;
        answer = code + " " + told.length() + "\n" + told;
    }

    static void run(String program, String[] arguments) {
        try {
            Class.forName(program).getMethod("main", String[].class).invoke(null, (Object) arguments);
            end(0);
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Ended)) failure.getCause().printStackTrace();
            end(1);
        } catch (ReflectiveOperationException failure) {
            failure.printStackTrace();
            end(1);
        }
    }
}
