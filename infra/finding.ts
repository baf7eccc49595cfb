/** How bad a finding is: `broken` stops a role from doing its work, `warn` lets it and may pass, `off` was not asked for. */
export type Standing = "ok" | "warn" | "broken" | "off";

/** One thing that was looked at on this machine, for people and for scripts. */
export interface Finding {
  /** What was looked at: `disk`, `store.public`, `control 1`. Unique in a report. */
  name: string;
  standing: Standing;
  /** What is, in one sentence. */
  says: string;
  /** What to do; absent where nothing is to be done. */
  todo?: string;
}

export const ok = (name: string, says: string): Finding => ({ name, standing: "ok", says });
export const off = (name: string, says: string): Finding => ({ name, standing: "off", says });
export const warn = (name: string, says: string, todo: string): Finding => ({ name, standing: "warn", says, todo });
export const broken = (name: string, says: string, todo: string): Finding => ({
  name,
  standing: "broken",
  says,
  todo,
});

/** Longest wait for one look, ms: an address that hangs must not hang the doctor. */
const LOOK_MS = 20_000;

/**
 * The findings of one look; one that throws, or takes longer than 20 s, is a finding itself, in the words of its error.
 * @param todo what to do where the error does not say it
 */
export async function findingsWithin(name: string, todo: string, look: () => Promise<Finding[]>): Promise<Finding[]> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing was heard for ${LOOK_MS / 1000} s`)), LOOK_MS);
  });
  try {
    return await Promise.race([look(), late]);
  } catch (error) {
    return [broken(name, error instanceof Error ? error.message : String(error), todo)];
  } finally {
    clearTimeout(timer);
  }
}
