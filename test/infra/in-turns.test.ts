import { expect, it } from "vitest";
import { inTurns, range, turnByTurn } from "../../infra/concurrency.ts";
import { TurnsSeen } from "../helpers/turns.ts";

it("works on so many items in their order, and on no more within one turn of the loop", async () => {
  const turns = new TurnsSeen();
  const done: number[] = [];
  await inTurns(range(0, 100), 8, (item) => {
    turns.see();
    done.push(item);
  });
  expect(done).toEqual([...range(0, 100)]);
  expect(turns.end()).toMatchObject({ all: 100, most: 8 });
});

it("throws what the work throws, and does nothing after it", async () => {
  const done: number[] = [];
  const work = (item: number): void => {
    done.push(item);
    if (item === 5) throw new Error("five");
  };
  await expect(inTurns(range(0, 100), 2, work)).rejects.toThrow("five");
  expect(done).toEqual([0, 1, 2, 3, 4, 5]);
});

it("bounds a turn for all who take part, however many begin at once and whatever each has to do", async () => {
  const giveTurn = turnByTurn(10);
  const turns = new TurnsSeen();
  await Promise.all(
    Array.from({ length: 50 }, async () => {
      await giveTurn(4);
      for (let i = 0; i < 4; i++) turns.see();
    }),
  );
  // Who fits in still may go past it by his own work.
  expect(turns.end()).toMatchObject({ all: 200, most: 12 });
});
