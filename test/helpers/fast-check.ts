import { type IAsyncProperty, type IProperty, assert as once, type Parameters } from "fast-check";

/** fast-check, with RUNS=n times as many histories of each property as `npm test` draws. */
export * from "fast-check";

const RUNS = Number(process.env.RUNS ?? 1);

export function assert<Ts>(property: IAsyncProperty<Ts>, parameters?: Parameters<Ts>): Promise<void>;
export function assert<Ts>(property: IProperty<Ts>, parameters?: Parameters<Ts>): void;
export function assert<Ts>(property: IAsyncProperty<Ts> | IProperty<Ts>, parameters: Parameters<Ts> = {}) {
  return once(property as IAsyncProperty<Ts>, { ...parameters, numRuns: (parameters.numRuns ?? 100) * RUNS });
}
