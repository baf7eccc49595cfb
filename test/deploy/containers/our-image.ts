import { run } from "./podman.ts";

/** The name that compose.yaml has for it. */
export const IMAGE = "touchstone";

interface Inspected {
  Size: number;
  User: string;
  Labels: Record<string, string>;
  Config: { User: string; Entrypoint: string[]; Volumes?: Record<string, unknown>; Env: string[] };
  HealthCheck?: { Test: string[] };
  Healthcheck?: { Test: string[] };
}

/** Built as docs/deploy.md says. @param base what the Dockerfile begins with */
export function buildImage(root: string, base: string): void {
  const revision = run("git", ["rev-parse", "HEAD"], { cwd: root }).trim();
  const args = [`NODE_IMAGE=${base}`, `REVISION=${revision}`].flatMap((arg) => ["--build-arg", arg]);
  const own = ["--format", "docker", "--label", `org.opencontainers.image.revision=${revision}`];
  run("podman", ["build", ...own, "-f", "infra/deploy/Dockerfile", ...args, "-t", IMAGE, "."], { cwd: root });
}

export const inspectImage = (): Inspected => (JSON.parse(run("podman", ["image", "inspect", IMAGE])) as [Inspected])[0];
