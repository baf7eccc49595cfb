import { execFileSync } from "node:child_process";
import { closeSync, openSync, readFileSync, rmSync, statfsSync, truncateSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** A file system of its own for the data of a service, which can be filled. Needs root. */
export interface SmallDisk {
  /** Writes until nothing more fits. */
  fill(): void;
  free(): void;
  close(): void;
}

/** Mounts an ext4 file system of that many MiB, kept in a file beside, on a folder; null where this is not permitted. */
export function mountDisk(image: string, at: string, mb: number): SmallDisk | null {
  try {
    writeFileSync(image, "");
    truncateSync(image, mb * 1024 * 1024);
    execFileSync("mkfs.ext4", ["-q", "-m", "0", image], { stdio: "ignore" });
    execFileSync("mount", ["-o", "loop", image, at], { stdio: "ignore" });
  } catch {
    rmSync(image, { force: true });
    return null;
  }
  const ballast = join(at, "ballast");
  return {
    fill() {
      const { bavail, bsize } = statfsSync(at);
      const file = openSync(ballast, "w");
      // Nearly all of it at once, and the rest block by block, since others write meanwhile.
      execFileSync("fallocate", ["--length", String(Math.max(bsize, (bavail - 16) * bsize)), ballast]);
      for (let offset = bavail * bsize, isFull = false; !isFull; offset += bsize) {
        try {
          writeSync(file, Buffer.alloc(bsize, 1), 0, bsize, offset);
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
          isFull = true;
        }
      }
      closeSync(file);
    },
    free: () => rmSync(ballast, { force: true }),
    close() {
      execFileSync("umount", ["--lazy", at]);
      rmSync(image, { force: true });
    },
  };
}

/** The parts of the soak that a fault acts on. */
export interface FaultWorld {
  dataDir: string;
  node: { stayBehind(): Promise<void>; catchUp(): void };
  disk: SmallDisk | null;
  pace: number;
  /** ms that a fault lasts, at most. */
  lastsMs: number;
  /** SIGKILL of the service's process group, and a new start. */
  killService(): Promise<void>;
  /** SIGINT, the end is waited for, something is done, and a new start. */
  restartService(between: () => void): Promise<void>;
  killReplica(): Promise<void>;
  killMirror(): Promise<void>;
  /** Runs a command with its clock at the record's time. */
  command(...words: string[]): void;
}

export interface Fault {
  name: string;
  act(world: FaultWorld, hour: number): Promise<void>;
}

/** Minutes of the record's time by which its clock is stepped, by the hour of the run. */
const STEPS_MIN = [30, -20];
const ROTATED = ["cards", "log", "answers", "witness"];

/** One of each in an hour, in this order. */
export const FAULTS: readonly Fault[] = [
  { name: "SIGKILL of the service", act: (world) => world.killService() },
  {
    name: "a node that lags",
    async act({ node, lastsMs }) {
      await node.stayBehind();
      await sleep(lastsMs);
      node.catchUp();
    },
  },
  {
    name: "a full disk",
    async act({ disk, lastsMs }) {
      if (!disk) return;
      disk.fill();
      await sleep(lastsMs / 2);
      disk.free();
    },
  },
  {
    name: "SIGKILL of the replica and of a mirror at work",
    async act(world) {
      await world.killMirror();
      await world.killReplica();
    },
  },
  {
    name: "a clock step",
    act: (world, hour) =>
      world.restartService(() => {
        const path = join(world.dataDir, "private/simulated/pace.json");
        const kept = JSON.parse(readFileSync(path, "utf8")) as { real: string };
        const step = STEPS_MIN[hour % STEPS_MIN.length]! * 60_000;
        kept.real = new Date(Date.parse(kept.real) - step / world.pace).toISOString();
        writeFileSync(path, JSON.stringify(kept));
      }),
  },
  {
    name: "a rotated key",
    act: (world, hour) => world.restartService(() => world.command("keys", "rotate", ROTATED[hour % ROTATED.length]!)),
  },
];
