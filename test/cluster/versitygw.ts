import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { CreateBucketCommand, S3Client } from "@aws-sdk/client-s3";
import type { S3Bucket } from "../../infra/store/s3/s3.ts";
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
  place(bucket: string, prefix?: string): Promise<S3Bucket>;
  stop(): Promise<void>;
}

interface Gateway {
  url: string;
  /** SIGKILL; its folder goes too. */
  stop(): Promise<void>;
}

interface Root {
  keyId: string;
  key: string;
}

/** versitygw over a folder of its own, on a free port. @param users by id, with their secrets; they may do nothing yet */
export async function startGateway(root: Root, users: Readonly<Record<string, string>> = {}): Promise<Gateway> {
  const binary = versitygw();
  const dir = await mkdtemp(join(tmpdir(), "versitygw-"));
  for (const name of ["data", "iam"]) await mkdir(join(dir, name));
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const env = { ...process.env, ROOT_ACCESS_KEY: root.keyId, ROOT_SECRET_KEY: root.key };
  const args = ["--port", `127.0.0.1:${port}`, "--quiet", "--iam-dir", join(dir, "iam"), "posix", join(dir, "data")];
  const server: ChildProcess = spawn(binary, args, { env, stdio: ["ignore", "ignore", "inherit"] });
  await untilUp(url, server);
  for (const [user, secret] of Object.entries(users)) {
    const admin = ["admin", "--access", root.keyId, "--secret", root.key, "--endpoint-url", url];
    const making = ["create-user", "--access", user, "--secret", secret, "--role", "user"];
    const { status, stderr } = spawnSync(binary, [...admin, ...making], { encoding: "utf8" });
    if (status !== 0) throw new Error(`versitygw makes no user ${user}: ${stderr}`);
  }
  return {
    url,
    async stop() {
      const gone = new Promise((resolve) => server.once("exit", resolve));
      server.kill("SIGKILL");
      await gone;
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** A real S3 server of one user, who may do everything. */
export async function startS3Server(): Promise<S3Server> {
  const { accessKeyId: keyId, secretAccessKey: key } = CREDENTIALS;
  const { url, stop } = await startGateway({ keyId, key });
  const client = new S3Client({ endpoint: url, region: "us-east-1", forcePathStyle: true, credentials: CREDENTIALS });
  const made = new Set<string>();
  return {
    url,
    async place(bucket, prefix = "") {
      if (!made.has(bucket)) await client.send(new CreateBucketCommand({ Bucket: bucket }));
      made.add(bucket);
      return { bucket, prefix, region: "us-east-1", endpoint: url, ...CREDENTIALS };
    },
    async stop() {
      client.destroy();
      await stop();
    },
  };
}

/** One user for both buckets of a run, as settings in the environment. */
export const s3Settings = ({ region, endpoint, accessKeyId, secretAccessKey }: S3Bucket): Record<string, string> => ({
  TOUCHSTONE_STORES_REGION: region,
  TOUCHSTONE_STORES_ENDPOINT: endpoint!,
  TOUCHSTONE_STORES_PRIVATE_KEY_ID: accessKeyId,
  TOUCHSTONE_STORES_PRIVATE_KEY: secretAccessKey,
  TOUCHSTONE_STORES_PUBLIC_KEY_ID: accessKeyId,
  TOUCHSTONE_STORES_PUBLIC_KEY: secretAccessKey,
});

/** At once where nothing else runs; only a hang reaches the bound. */
async function untilUp(url: string, server: ChildProcess): Promise<void> {
  for (let tries = 0; tries < 4_800 && server.exitCode === null; tries++) {
    if (await fetch(url).catch(() => null)) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("versitygw did not come up");
}
