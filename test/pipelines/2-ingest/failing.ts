/** Where a call of `method` breaks: before it did anything, or after it did all and the answer was lost. */
export interface Breach<T> {
  method: keyof T & string;
  /** Which call, from 0. */
  n: number;
  when: "before" | "after";
}

/** `part` with one broken call. */
export function failing<T extends object>(
  part: T,
  { method, n, when }: Breach<T>,
): { broken: T; reached: () => boolean } {
  let calls = 0;
  let reached = false;
  const broken = new Proxy(part, {
    get(target, name) {
      const value = Reflect.get(target, name, target) as unknown;
      if (typeof value !== "function") return value;
      if (name !== method) return value.bind(target);
      return async (...args: unknown[]) => {
        const mine = calls++ === n;
        reached ||= mine;
        if (mine && when === "before") throw new Error("broken before it");
        const done: unknown = await value.apply(target, args);
        if (mine) throw new Error("broken after it");
        return done;
      };
    },
  });
  return { broken, reached: () => reached };
}
