/**
 * Loaded into every process of a run by NODE_OPTIONS: its clock, and that of its threads, is SHIFTED_DATE_MS ahead of the
 * machine's. Timers and the steady counter stay as they are, and so does the Date header of Node's own server.
 */
const ahead = Number(process.env.SHIFTED_DATE_MS ?? 0);
const Real = globalThis.Date;

globalThis.Date = new Proxy(Real, {
  construct: (target, words, asked) =>
    Reflect.construct(target, words.length === 0 ? [Real.now() + ahead] : words, asked),
  apply: () => new globalThis.Date().toString(),
  get: (target, name, asked) => (name === "now" ? () => Real.now() + ahead : Reflect.get(target, name, asked)),
});
