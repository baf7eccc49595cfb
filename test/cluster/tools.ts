import { ENGINE_TOOLS, type Tool } from "../../fixtures/cluster/tools.ts";

export { isInstalled } from "../../fixtures/cluster/tools.ts";

interface NeededTool extends Tool {
  /** Test files that need it. */
  needs: readonly string[];
}

/** What starts a Kafka broker: Java runs it, Maven brings its jars. */
const BROKER = [
  "archive.test.ts",
  "demo.test.ts",
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
export const TOOLS: Record<string, NeededTool> = {
  nginx: {
    command: ["nginx", "-v"],
    install: "apt-get install nginx-light",
    needs: ["nginx.test.ts", "nginx-front.test.ts"],
  },
  go: {
    ...ENGINE_TOOLS.go,
    needs: [
      "archive.test.ts",
      "demo.test.ts",
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
  java: { ...ENGINE_TOOLS.java, needs: BROKER },
  maven: { ...ENGINE_TOOLS.maven, needs: BROKER },
};

/** Debian puts daemons, and Go's archive its command, where a user's PATH may not look. */
export const SEARCHED: NodeJS.ProcessEnv = {
  ...process.env,
  PATH: `${process.env.PATH ?? ""}:/usr/sbin:/usr/local/go/bin`,
};
