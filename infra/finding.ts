/** Severity of a finding: `broken` stops a role, `warn` does not and may pass, `off` is not configured. */
export type Severity = "ok" | "warn" | "broken" | "off";

/** The result of one check of this machine, for people and for scripts. */
export interface Finding {
  /** What was checked: `disk`, `store.public`, `control 1`. Unique in a report. */
  name: string;
  standing: Severity;
  /** What was found, in one sentence. */
  says: string;
  /** What to do; absent when there is nothing to do. */
  todo?: string;
}

/** Creates a finding of this severity. @param says what was found @param todo what to do */
export const ok = (name: string, says: string): Finding => ({ name, standing: "ok", says });
export const off = (name: string, says: string): Finding => ({ name, standing: "off", says });
export const warn = (name: string, says: string, todo: string): Finding => ({ name, standing: "warn", says, todo });
export const broken = (name: string, says: string, todo: string): Finding => ({
  name,
  standing: "broken",
  says,
  todo,
});

/** Longest wait for one check, ms, so that an address that hangs does not hang `doctor`. */
const LOOK_MS = 20_000;

/**
 * Runs one check and returns its findings. A check that throws, or takes longer than 20 s, becomes a `broken` finding with
 * the error's message.
 * @param todo what to do in that case
 */
export async function findingsWithin(name: string, todo: string, look: () => Promise<Finding[]>): Promise<Finding[]> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${LOOK_MS / 1000} s`)), LOOK_MS);
  });
  try {
    return await Promise.race([look(), late]);
  } catch (error) {
    return [broken(name, error instanceof Error ? error.message : String(error), todo)];
  } finally {
    clearTimeout(timer);
  }
}
