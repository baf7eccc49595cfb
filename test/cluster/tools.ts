import { spawnSync } from "node:child_process";

export interface Tool {
  /** How it is asked whether it is there. */
  command: readonly [string, ...string[]];
  /** Debian's package, or where it comes from. */
  install: string;
  /** Test files that need it. */
  needs: readonly string[];
}

/** What starts a Kafka broker: Java runs it, Maven brings its jars. */
const BROKER = [
  "archive.test.ts",
  "log.test.ts",
  "log-faults.test.ts",
  "market.test.ts",
  "schedules-real.test.ts",
  "flow-faults.test.ts",
  "owners.test.ts",
  "members.test.ts",
  "observers.test.ts",
  "roles.test.ts",
] as const;

/** Tools of this suite beyond Node. */
export const TOOLS: Record<string, Tool> = {
  nginx: {
    command: ["nginx", "-v"],
    install: "apt-get install nginx-light",
    needs: ["nginx.test.ts", "nginx-front.test.ts"],
  },
  go: {
    command: ["go", "version"],
    install: "Go 1.26 or newer",
    needs: [
      "archive.test.ts",
      "go.test.ts",
      "s3.test.ts",
      "market.test.ts",
      "schedules-real.test.ts",
      "flow-faults.test.ts",
      "owners.test.ts",
      "policy.test.ts",
      "roles.test.ts",
    ],
  },
  promtool: {
    command: ["promtool", "--version"],
    install: "apt-get install prometheus",
    needs: ["alarms.test.ts", "roles.test.ts"],
  },
  java: {
    command: ["java", "-version"],
    install: "Java 17 or newer (apt-get install openjdk-17-jre-headless)",
    needs: BROKER,
  },
  maven: {
    command: ["mvn", "-version"],
    install: "apt-get install maven",
    needs: BROKER,
  },
};

/** Debian puts daemons, and Go's archive its command, where a user's PATH may not look. */
export const SEARCHED: NodeJS.ProcessEnv = {
  ...process.env,
  PATH: `${process.env.PATH ?? ""}:/usr/sbin:/usr/local/go/bin`,
};

/** Is it there and does it start? */
export function isThere({ command: [name, ...args] }: Tool): boolean {
  return spawnSync(name, args, { env: SEARCHED, stdio: "ignore" }).status === 0;
}
