import { expect, test } from "vitest";
import { askPeople } from "../../commands/world.ts";
import { peer } from "../helpers/client.ts";

const SERVICE = { url: "http://127.0.0.1:1", origin: "http://localhost:8402" };

/** An address that loses the first connection, answers 500 to the second request, and 200 from then on. */
async function unsteady(answersFrom: number) {
  let asked = 0;
  const server = await peer((request, response) => {
    asked++;
    if (asked === 1) request.socket.destroy();
    else response.writeHead(asked < answersFrom ? 500 : 200).end("the service was not reached");
  });
  return { server, people: `${server.url}/people`, count: () => asked };
}

function pauses() {
  const taken: number[] = [];
  const clock = { sleep: async (ms: number) => void taken.push(ms) };
  return { taken, clock };
}

test("the market's users are asked again after a lost connection and a refusal", async () => {
  const { server, people, count } = await unsteady(3);
  const { taken, clock } = pauses();
  await askPeople({ people }, SERVICE, new AbortController().signal, clock);
  expect([count(), taken]).toEqual([3, [2_000, 10_000]]);
  await server.close();
});

test("four attempts at most, the last of which says why; none after a stop", async () => {
  const { server, people, count } = await unsteady(99);
  const { taken, clock } = pauses();
  const asking = askPeople({ people }, SERVICE, new AbortController().signal, clock);
  await expect(asking).rejects.toThrow("the market's users failed: 500 the service was not reached");
  expect([count(), taken.length]).toEqual([4, 3]);
  await expect(askPeople({ people }, SERVICE, AbortSignal.abort(new Error("stopped")), clock)).rejects.toThrow(
    "stopped",
  );
  expect([count(), taken.length]).toEqual([4, 3]);
  await server.close();
});
