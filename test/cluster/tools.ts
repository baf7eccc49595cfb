import { spawnSync } from "node:child_process";

export interface Tool {
  /** How it is asked whether it is there. */
  command: readonly [string, ...string[]];
  /** Debian's package, or where it comes from. */
  install: string;
  /** Test files that need it. */
  needs: readonly string[];
}

/** Tools of this suite beyond Node. */
export const TOOLS: Record<string, Tool> = {
  nginx: { command: ["nginx", "-v"], install: "apt-get install nginx-light", needs: ["nginx.test.ts"] },
  go: {
    command: ["go", "version"],
    install: "Go 1.26 or newer",
    needs: ["go.test.ts", "s3.test.ts", "market.test.ts"],
  },
  java: {
    command: ["java", "-version"],
    install: "Java 17 or newer (apt-get install openjdk-17-jre-headless)",
    needs: ["log.test.ts", "log-faults.test.ts", "market.test.ts"],
  },
  maven: {
    command: ["mvn", "-version"],
    install: "apt-get install maven",
    needs: ["log.test.ts", "log-faults.test.ts", "market.test.ts"],
  },
};

/** Is it there and does it start? Debian puts daemons where a user's PATH may not look. */
export function isThere({ command: [name, ...args] }: Tool): boolean {
  const path = `${process.env.PATH ?? ""}:/usr/sbin:/usr/local/go/bin`;
  return spawnSync(name, args, { env: { ...process.env, PATH: path }, stdio: "ignore" }).status === 0;
}
