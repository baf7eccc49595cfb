import type { FileStat, FolderEntry, FsSeam, NewFile, ReadFile } from "../../../infra/store/fs.ts";
import type { FolderLock } from "../../../infra/store/lock.ts";

/** One thing the file system was asked to do; `index` counts from 0. Reads are not steps: they change nothing. */
export interface Step {
  index: number;
  op: "openNew" | "write" | "setModified" | "syncFile" | "sync" | "mkdir" | "link" | "rename" | "unlink";
  path: string;
}

/** What to do with a step instead of doing it: fail, fail half done, lose power, or lie that it was done. */
export type Fault = { fail: string; torn?: boolean } | "power" | "lie";

/** Power is gone: everything fails from here on, until {@link RecordingFs.afterPowerLoss}. */
export class PowerLoss extends Error {}

interface Inode {
  number: bigint;
  links: number;
  modifiedNs: bigint;
  data: Buffer;
  synced: Buffer;
  /** Only for folders: name -> inode, now and on the disk. */
  entries: Map<string, Inode> | null;
  syncedEntries: Map<string, Inode>;
}

const errno = (code: string, path: string): Error => Object.assign(new Error(`${code}: ${path}`), { code });

/**
 * A file system in memory that remembers what was synced and what was not. It is as hostile as POSIX allows: inode
 * numbers are given again at once, the clock ticks rarely, a file's sync says nothing of its name, and a folder's sync
 * nothing of the bytes.
 */
export class RecordingFs implements FsSeam {
  readonly steps: Step[] = [];
  fault: (step: Step) => Fault | undefined = () => undefined;
  readonly #start = BigInt(Date.now()) * 1_000_000n;
  #free: bigint[] = [];
  #nextInode = 2n;
  #dead = false;
  #ticks = 0;
  #root = this.#inode(true);
  /** One lock for all clients: every test keeps one store on it. */
  #held: Promise<void> = Promise.resolve();

  /**
   * The disk as it is found after the power went. `keeps` is asked for every change that was not synced: did it reach
   * the disk all the same? (`() => false` is the harshest disk, `() => true` a plain kill -9.)
   */
  afterPowerLoss(keeps: () => boolean): RecordingFs {
    const copies = new Map<Inode, Inode>();
    const image = new RecordingFs();
    const copy = (from: Inode): Inode => {
      const known = copies.get(from);
      if (known) return known;
      const data = from.data.equals(from.synced) || !keeps() ? from.synced : torn(from.data, keeps);
      const to: Inode = { ...from, data, synced: data, links: 0 };
      copies.set(from, to);
      if (from.entries) {
        const names = new Set([...from.entries.keys(), ...from.syncedEntries.keys()]);
        const kept = new Map<string, Inode>();
        for (const name of names) {
          const [now, disk] = [from.entries.get(name), from.syncedEntries.get(name)];
          const inode = now === disk || !keeps() ? disk : now;
          if (inode) kept.set(name, copy(inode));
        }
        to.entries = kept;
        to.syncedEntries = new Map(kept);
      }
      return to;
    };
    image.#root = copy(this.#root);
    image.#nextInode = this.#nextInode;
    for (const inode of copies.values()) for (const child of inode.entries?.values() ?? []) child.links++;
    return image;
  }

  async openNew(path: string): Promise<NewFile> {
    await this.#step("openNew", path);
    const { folder, name } = this.#parent(path);
    if (folder.has(name)) throw errno("EEXIST", path);
    const file = this.#inode(false);
    file.links = 1;
    folder.set(name, file);
    return {
      write: async (bytes) => {
        const done = await this.#step("write", path, () => {
          file.data = Buffer.from(bytes.subarray(0, Math.floor(bytes.length / 2)));
        });
        if (done) file.data = Buffer.from(bytes);
        file.modifiedNs = this.#now();
      },
      stat: async () => statOf(file),
      setModified: async (ms) => {
        if (await this.#step("setModified", path)) file.modifiedNs = BigInt(Math.floor(ms)) * 1_000_000n;
      },
      sync: async () => {
        if (await this.#step("syncFile", path)) file.synced = file.data;
      },
      close: async () => {},
    };
  }

  async sync(path: string): Promise<void> {
    const inode = this.#find(path);
    if (!(await this.#step("sync", path))) return;
    inode.synced = inode.data;
    if (inode.entries) inode.syncedEntries = new Map(inode.entries);
  }

  async mkdir(path: string): Promise<void> {
    await this.#step("mkdir", path);
    const { folder, name } = this.#parent(path);
    if (folder.has(name)) throw errno("EEXIST", path);
    folder.set(name, this.#inode(true));
  }

  async link(from: string, to: string): Promise<void> {
    await this.#step("link", to);
    const inode = this.#find(from);
    const { folder, name } = this.#parent(to);
    if (folder.has(name)) throw errno("EEXIST", to);
    folder.set(name, inode);
    inode.links++;
  }

  async rename(from: string, to: string): Promise<void> {
    await this.#step("rename", to);
    const source = this.#parent(from);
    const inode = this.#find(from);
    const target = this.#parent(to);
    const old = target.folder.get(target.name);
    if (old?.entries) throw errno("EISDIR", to);
    source.folder.delete(source.name);
    target.folder.set(target.name, inode);
    if (old) this.#drop(old);
  }

  async unlink(path: string): Promise<void> {
    await this.#step("unlink", path);
    const inode = this.#find(path);
    const { folder, name } = this.#parent(path);
    folder.delete(name);
    this.#drop(inode);
  }

  async readdir(path: string): Promise<FolderEntry[]> {
    await turn();
    const { entries } = this.#find(path);
    if (!entries) throw errno("ENOTDIR", path);
    return [...entries].map(([name, inode]) => ({ name, kind: statOf(inode).kind }));
  }

  async stat(path: string): Promise<FileStat> {
    await turn();
    return statOf(this.#find(path));
  }

  async read(path: string, range: (stat: FileStat) => { start: number; end: number }): Promise<ReadFile> {
    await turn();
    const inode = this.#find(path);
    const stat = statOf(inode);
    const { start, end } = range(stat);
    return { stat, bytes: Buffer.from(inode.data.subarray(start, end)) };
  }

  openLock(): FolderLock {
    return {
      acquire: async () => {
        const before = this.#held;
        let release = () => {};
        this.#held = new Promise((resolve) => {
          release = resolve;
        });
        await before;
        return release;
      },
      close: () => this.#held,
    };
  }

  /** Records the step; false when it is to be skipped (a lie). `half` is what a torn step still does. */
  async #step(op: Step["op"], path: string, half: () => void = () => {}): Promise<boolean> {
    await turn();
    if (this.#dead) throw new PowerLoss(`${op} ${path}`);
    const step = { index: this.steps.length, op, path };
    this.steps.push(step);
    const fault = this.fault(step);
    if (fault === undefined) return true;
    if (fault === "lie") return false;
    if (fault === "power") {
      half();
      this.#dead = true;
      throw new PowerLoss(`${op} ${path}`);
    }
    if (fault.torn) half();
    throw errno(fault.fail, path);
  }

  #find(path: string): Inode {
    if (this.#dead) throw new PowerLoss(path);
    let inode = this.#root;
    for (const name of path.split("/").filter(Boolean)) {
      if (!inode.entries) throw errno("ENOTDIR", path);
      const next = inode.entries.get(name);
      if (!next) throw errno("ENOENT", path);
      inode = next;
    }
    return inode;
  }

  #parent(path: string): { folder: Map<string, Inode>; name: string } {
    const cut = path.lastIndexOf("/");
    const { entries } = this.#find(path.slice(0, cut));
    if (!entries) throw errno("ENOTDIR", path);
    return { folder: entries, name: path.slice(cut + 1) };
  }

  #inode(isFolder: boolean): Inode {
    const empty = Buffer.alloc(0);
    return {
      number: this.#free.pop() ?? this.#nextInode++,
      links: 0,
      modifiedNs: this.#now(),
      data: empty,
      synced: empty,
      entries: isFolder ? new Map() : null,
      syncedEntries: new Map(),
    };
  }

  #drop(inode: Inode): void {
    inode.links--;
    if (inode.links === 0) this.#free.push(inode.number);
  }

  /** A tick of 4 ms every 16 changes. */
  #now(): bigint {
    return this.#start + BigInt(Math.floor(this.#ticks++ / 16)) * 4_000_000n;
  }
}

/** One turn of the event loop, as a real disk would take, so that concurrent callers interleave. */
const turn = () => new Promise((resolve) => setImmediate(resolve));

const torn = (data: Buffer, keeps: () => boolean): Buffer =>
  keeps() ? data : data.subarray(0, Math.floor(data.length / 2));

const statOf = (inode: Inode): FileStat => ({
  kind: inode.entries ? "folder" : "file",
  size: inode.data.length,
  inode: inode.number,
  modifiedNs: inode.modifiedNs,
});
