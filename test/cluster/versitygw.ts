import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { CreateBucketCommand, S3Client } from "@aws-sdk/client-s3";
import type { S3Place } from "../../infra/store/s3/client.ts";
import { freePort } from "./ports.ts";

/** The version that the suite was written against. */
const VERSION = "v1.8.0";
const CACHE = join(homedir(), ".cache", "touchstone", `versitygw-${VERSION}`);
const CREDENTIALS = { accessKeyId: "touchstone", secretAccessKey: "touchstone-secret" };

/** Build the server once into a cache folder; later runs find it there. @throws with the compiler's words */
export function versitygw(): string {
  const binary = join(CACHE, "versitygw");
  if (existsSync(binary)) return binary;
  process.stderr.write(`building versitygw ${VERSION} into ${CACHE}: some minutes, once\n`);
  const env = { ...process.env, GOBIN: CACHE };
  const go = ["install", `github.com/versity/versitygw/cmd/versitygw@${VERSION}`];
  const { status, stderr } = spawnSync("go", go, { env, encoding: "utf8" });
  if (status !== 0) throw new Error(`go install versitygw failed: ${stderr}`);
  return binary;
}

export interface S3Server {
  url: string;
  /** A bucket of its own for each name; it is made when asked for the first time. */
  place(bucket: string, prefix?: string): Promise<S3Place>;
  stop(): Promise<void>;
}

/** A real S3 server (versitygw over a folder) on a free port. */
export async function startS3Server(): Promise<S3Server> {
  const binary = versitygw();
  const dir = await mkdtemp(join(tmpdir(), "versitygw-"));
  await mkdir(join(dir, "data"));
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const env = {
    ...process.env,
    ROOT_ACCESS_KEY: CREDENTIALS.accessKeyId,
    ROOT_SECRET_KEY: CREDENTIALS.secretAccessKey,
  };
  const args = ["--port", `127.0.0.1:${port}`, "--quiet", "posix", join(dir, "data")];
  const server: ChildProcess = spawn(binary, args, { env, stdio: ["ignore", "ignore", "inherit"] });
  const client = new S3Client({ endpoint: url, region: "us-east-1", forcePathStyle: true, credentials: CREDENTIALS });
  const made = new Set<string>();
  await untilUp(url, server);
  return {
    url,
    async place(bucket, prefix = "") {
      if (!made.has(bucket)) await client.send(new CreateBucketCommand({ Bucket: bucket }));
      made.add(bucket);
      return { bucket, prefix, region: "us-east-1", endpoint: url, ...CREDENTIALS };
    },
    async stop() {
      client.destroy();
      const gone = new Promise((resolve) => server.once("exit", resolve));
      server.kill("SIGKILL");
      await gone;
      await rm(dir, { recursive: true, force: true });
    },
  };
}

export async function untilUp(url: string, server: ChildProcess): Promise<void> {
  for (let tries = 0; tries < 200 && server.exitCode === null; tries++) {
    if (await fetch(url).catch(() => null)) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("versitygw did not come up");
}
