// Plays the scenes of several programs in one process, which costs a fraction of as many processes.
// Usage: Clients HOST:PORT NODE PROGRAM... A scene is told as "program: scene".

import java.util.List;

public class Clients extends Scenes {
    private static final int AT_ONCE = 8;
    private static String program;

    public static void main(String[] arguments) throws Exception {
        begin(arguments[0]);
        AdminCalls.node = arguments[1];
        for (String name : List.of(arguments).subList(2, arguments.length)) {
            program = name;
            switch (name) {
                case "AdminCalls" -> AdminCalls.add();
                case "ConsumerProtocol" -> ConsumerProtocol.add();
                case "GroupLife" -> GroupLife.add();
                case "ShareGroups" -> ShareGroups.add();
                case "Transactions" -> Transactions.add();
                default -> throw new IllegalArgumentException(name);
            }
        }
        playAll(AT_ONCE);
    }

    static void add(String name, Scene scene) {
        scene(program + ": " + name, scene);
    }
}
