/** A member of a group as it says of itself: what it holds, or is still letting go of. */
export interface Member {
  id: string;
  owned: readonly number[];
}

/**
 * Partitions 0 .. n-1 over the members, as evenly as it goes and moving as few as possible. A partition that has to move
 * is given to nobody in this round: its holder lets go of it first, asks for another round, and it is free in that one.
 * So nobody holds a partition while another still works on it. Two that claim the same both let go of it.
 * @returns member -> partitions, ascending; the same for the same input, whatever the order of the members
 */
export function assignPartitions(partitions: number, members: readonly Member[]): Map<string, number[]> {
  const claims = new Map<number, number>();
  for (const { owned } of members)
    for (const partition of new Set(owned)) claims.set(partition, (claims.get(partition) ?? 0) + 1);
  const keeping = members.map(({ id, owned }) => ({
    id,
    parts: [...new Set(owned)].filter((p) => p >= 0 && p < partitions && claims.get(p) === 1).sort((a, b) => a - b),
  }));
  // Who holds most may keep the odd one, so that an even spread stays as it is.
  keeping.sort((a, b) => b.parts.length - a.parts.length || (a.id < b.id ? -1 : 1));
  const quota = (place: number) =>
    Math.floor(partitions / keeping.length) + (place < partitions % keeping.length ? 1 : 0);
  for (const [place, member] of keeping.entries()) member.parts = member.parts.slice(0, quota(place));
  const free = Array.from({ length: partitions }, (_, p) => p).filter((p) => !claims.has(p));
  for (const [place, { parts }] of keeping.entries()) parts.push(...free.splice(0, quota(place) - parts.length));
  return new Map(keeping.map(({ id, parts }) => [id, parts.sort((a, b) => a - b)]));
}
