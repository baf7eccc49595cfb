import { expect, test } from "vitest";
import type { Receiver } from "../../../fixtures/receiver.ts";
import type { Notifier } from "../../../pipelines/6-notify/notifier.ts";
import { fc } from "../../helpers/histories.ts";
import type { TestServing } from "../../helpers/serving.ts";
import { deliver, type MadeWatcher, MUL, postJson, SUM, WatcherTestbed, watch } from "../../helpers/watchers.ts";

const SPECS = [SUM, MUL];
const BANDS = ["A", "B", "C", "D", "F"] as const;

type Step =
  | { do: "create"; receiver: number; both: boolean }
  | { do: "stop"; watcher: number }
  | { do: "card"; spec: number; band: number }
  | { do: "answer"; receiver: number; status: number }
  | { do: "turn"; process: number }
  | { do: "restart"; process: number }
  | { do: "pass"; minutes: number };

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ do: fc.constant("create" as const), receiver: fc.nat(1), both: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("stop" as const), watcher: fc.nat(5) }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant("card" as const), spec: fc.nat(1), band: fc.nat(4) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      ...{ do: fc.constant("answer" as const), receiver: fc.nat(1), status: fc.constantFrom(204, 204, 500, 301, 0) },
    }),
  },
  { weight: 6, arbitrary: fc.record({ do: fc.constant("turn" as const), process: fc.nat(1) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("restart" as const), process: fc.nat(1) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("pass" as const), minutes: fc.integer({ min: 1, max: 400 }) }) },
);

/** What must have come of one watcher: the cards of what it watches since it was made, up to its stop. */
interface Expected {
  made: MadeWatcher;
  receiver: number;
  urls: string[];
  due: { asked: string; computedAt: string }[];
  /** Notices that its receiver had when it was stopped. */
  stoppedAt: number | null;
}

class World {
  readonly watchers: Expected[] = [];
  readonly processes: [Notifier, Notifier];

  constructor(
    readonly bed: WatcherTestbed,
    readonly serving: TestServing,
    readonly receivers: readonly Receiver[],
  ) {
    this.processes = [bed.notifier(), bed.notifier()];
  }

  async play(one: Step): Promise<void> {
    switch (one.do) {
      case "create": {
        if (this.watchers.length >= 6) return;
        const urls = one.both ? SPECS.map(({ url }) => url) : [SUM.url];
        await this.serving.follower.refresh();
        const made = await watch(this.serving, this.receivers[one.receiver]!.url, urls);
        this.watchers.push({ made, receiver: one.receiver, urls, due: [], stoppedAt: null });
        return;
      }
      case "stop": {
        const watcher = this.watchers[one.watcher];
        if (!watcher || watcher.stoppedAt !== null) return;
        const { status } = await postJson(this.serving, "/v1/watchers/stop", undefined, watcher.made.token);
        expect(status).toBe(200);
        watcher.stoppedAt = this.of(watcher).length;
        return;
      }
      case "card": {
        const { url } = SPECS[one.spec]!;
        const card = await this.bed.card(SPECS[one.spec]!, { band: BANDS[one.band]! });
        for (const watcher of this.watchers) {
          if (watcher.stoppedAt === null && watcher.urls.includes(url)) {
            watcher.due.push({ asked: url, computedAt: card.computed_at });
          }
        }
        return;
      }
      case "answer":
        this.receivers[one.receiver]!.answer = one.status === 0 ? (response) => void response.destroy() : one.status;
        return;
      case "turn":
        return deliver(this.processes[one.process]!);
      case "restart":
        await this.processes[one.process]!.stop();
        this.processes[one.process] = this.bed.notifier();
        return;
      case "pass":
        this.bed.clock.pass(one.minutes * 60_000);
    }
  }

  /** What came for one watcher, accepted or not. */
  of({ made, receiver }: Expected): Receiver["notices"] {
    return this.receivers[receiver]!.notices.filter(({ body }) => body.watcher_id === made.watcher_id);
  }

  /** Everybody is up again, and all that is due goes out. */
  async settle(): Promise<void> {
    for (const receiver of this.receivers) receiver.answer = 204;
    this.bed.clock.pass(24 * 3_600_000);
    for (let i = 0; i < 3; i++) {
      await deliver(this.processes[0]);
      await deliver(this.processes[1]);
    }
  }

  prove(): void {
    for (const watcher of this.watchers) {
      const came = this.of(watcher);
      const first = came
        .filter(({ id }, i) => came.findIndex((other) => other.id === id) === i)
        .map(({ body }) => body);
      const seen = first.map(({ asked, to }) => ({ asked, computedAt: to.computed_at }));
      if (watcher.stoppedAt === null) expect(seen).toEqual(watcher.due);
      else {
        // A stop ends it where it was: what came is the beginning of what was due, and nothing came after it.
        expect(seen).toEqual(watcher.due.slice(0, seen.length));
        expect(came).toHaveLength(watcher.stoppedAt);
      }
      const accepted = came.filter(({ answered }) => answered === 204).map(({ id }) => id);
      // Nobody died in the middle of one, so what was accepted is not repeated.
      expect(accepted).toEqual([...new Set(accepted)]);
      for (const url of watcher.urls) {
        const mine = first.filter(({ asked }) => asked === url);
        expect(mine.map(({ seq }) => seq)).toEqual(mine.map((_, i) => i + 1));
        // Each begins where the one before ended.
        for (const [i, { from }] of mine.entries()) if (i > 0) expect(from).toEqual(mine[i - 1]!.to);
      }
    }
  }
}

// Draws histories.
test("in any history of watchers, cards, receivers and processes every card comes in order, and none after a stop", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async (history) => {
      const bed = await WatcherTestbed.open();
      try {
        const receivers = [await bed.receiver(), await bed.receiver()];
        const world = new World(bed, await bed.serving(), receivers);
        await world.play({ do: "create", receiver: 0, both: true });
        for (const one of history) await world.play(one);
        await world.settle();
        world.prove();
      } finally {
        await bed.close();
      }
    }),
    { numRuns: 25 },
  );
});
