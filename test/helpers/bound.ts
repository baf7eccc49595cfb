/** An object with all methods of another, some of them replaced. */
export function boundTo<T extends object>(one: T, replaced: Partial<T> = {}): T {
  const names = new Set<string>();
  for (let from: object = one; from !== Object.prototype; from = Object.getPrototypeOf(from))
    for (const name of Object.getOwnPropertyNames(from)) names.add(name);
  const all: Record<string, unknown> = {};
  for (const name of names) {
    const value = (one as Record<string, unknown>)[name];
    all[name] = typeof value === "function" ? value.bind(one) : value;
  }
  return { ...all, ...replaced } as T;
}
