import { setTimeout as sleep } from "node:timers/promises";

/** What serving/http/overload.ts tells who is free while the loop of its process is behind, also for what others do there. */
const BUSY = "this server is overloaded: free requests have to wait";

/** `fetch` of a process of ours by somebody who has time: while it says that it has too much to do, it is asked again. */
export const unhurried: typeof fetch = async (input, init) => {
  for (;;) {
    const answer = await fetch(input, init);
    if (answer.status !== 503 || !(await answer.clone().text()).includes(BUSY)) return answer;
    await sleep(500);
  }
};
