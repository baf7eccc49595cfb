import kafkajs, { type Broker, type Cluster } from "kafkajs";

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
  const quota = (rank: number) =>
    Math.floor(partitions / keeping.length) + (rank < partitions % keeping.length ? 1 : 0);
  for (const [rank, member] of keeping.entries()) member.parts = member.parts.slice(0, quota(rank));
  const free = Array.from({ length: partitions }, (_, p) => p).filter((p) => !claims.has(p));
  for (const [rank, { parts }] of keeping.entries()) parts.push(...free.splice(0, quota(rank) - parts.length));
  return new Map(keeping.map(({ id, parts }) => [id, parts.sort((a, b) => a - b)]));
}

const { AssignerProtocol } = kafkajs;
const { MemberMetadata, MemberAssignment } = AssignerProtocol;

/** Name of our assigner: members that bring another one are refused by the broker. */
const PROTOCOL = "touchstone-cooperative";

/** A group: its name, the topics it is about and the partitions of each. */
export interface Group {
  id: string;
  topics: readonly string[];
  partitions: number;
  /** The broker takes a member for dead after this much silence, ms. */
  sessionMs: number;
}

/** Calls of a broker that kafkajs' types leave out: the group protocol, one method a request of it. */
interface Coordinator extends Broker {
  joinGroup(request: {
    groupId: string;
    sessionTimeout: number;
    rebalanceTimeout: number;
    memberId: string;
    groupProtocols: { name: string; metadata: Buffer }[];
  }): Promise<{
    generationId: number;
    leaderId: string;
    memberId: string;
    members: { memberId: string; memberMetadata: Buffer }[];
  }>;
  syncGroup(request: {
    groupId: string;
    generationId: number;
    memberId: string;
    groupAssignment: { memberId: string; memberAssignment: Buffer }[];
  }): Promise<{ memberAssignment: Buffer }>;
  heartbeat(request: { groupId: string; groupGenerationId: number; memberId: string }): Promise<unknown>;
  leaveGroup(request: { groupId: string; memberId: string }): Promise<unknown>;
}

/** What a member claims when it joins, out of the bytes that Kafka leaves to the members. */
function ownedOf(userData: Buffer): number[] {
  try {
    const claim = JSON.parse(userData.toString("utf8")) as { owned?: unknown };
    return Array.isArray(claim.owned) ? claim.owned.filter((p): p is number => Number.isInteger(p)) : [];
  } catch {
    // A member that says nothing we can read holds nothing we know of; the chains decide between it and another.
    return [];
  }
}

/**
 * A member of a consumer group: speaks Kafka's classic group protocol with the coordinator (join, sync, heartbeat, leave).
 * The consumer of kafkajs is not used, since it fetches what it is assigned and cannot ask for another rebalance.
 */
export class Membership {
  #memberId = "";
  #generation = 0;
  #coordinator: Coordinator | null = null;

  constructor(
    private readonly cluster: Cluster,
    private readonly group: Group,
  ) {}

  /**
   * One round: join, share out when this member is the leader, hear the own share. Takes as long as the slowest member
   * needs to join, at most a session. @throws what the broker says (`type`), or the connection
   */
  async round(owned: readonly number[]): Promise<{ generation: number; partitions: number[] }> {
    const groupId = this.group.id;
    const coordinator = await this.#find();
    const { memberId, generationId, leaderId, members } = await this.#join(coordinator, owned);
    this.#memberId = memberId;
    this.#generation = generationId;
    const groupAssignment = leaderId === memberId ? this.#share(members) : [];
    const answer = await coordinator.syncGroup({ groupId, generationId, memberId, groupAssignment });
    return { generation: generationId, partitions: this.#read(answer.memberAssignment) };
  }

  /** A broker gives a new member its id first and wants to hear it again with that. */
  async #join(coordinator: Coordinator, owned: readonly number[]) {
    const { id: groupId, topics, sessionMs } = this.group;
    const userData = Buffer.from(JSON.stringify({ v: 1, owned }));
    const metadata = MemberMetadata.encode({ version: 1, topics: [...topics], userData });
    const groupProtocols = [{ name: PROTOCOL, metadata }];
    const join = (memberId: string) =>
      coordinator.joinGroup({
        groupId,
        sessionTimeout: sessionMs,
        rebalanceTimeout: sessionMs,
        memberId,
        groupProtocols,
      });
    try {
      return await join(this.#memberId);
    } catch (error) {
      const { type, memberId } = error as { type?: string; memberId?: string };
      if (type !== "MEMBER_ID_REQUIRED" || !memberId) throw error;
      return await join(memberId);
    }
  }

  #share(members: readonly { memberId: string; memberMetadata: Buffer }[]) {
    const claims = members.map(({ memberId, memberMetadata }) => ({
      id: memberId,
      owned: ownedOf(MemberMetadata.decode(memberMetadata)?.userData ?? Buffer.alloc(0)),
    }));
    const shares = assignPartitions(this.group.partitions, claims);
    return [...shares].map(([memberId, partitions]) => ({
      memberId,
      memberAssignment: MemberAssignment.encode({
        version: 1,
        assignment: Object.fromEntries(this.group.topics.map((topic) => [topic, partitions])),
        userData: Buffer.alloc(0),
      }),
    }));
  }

  #read(assignment: Buffer): number[] {
    const [topic] = this.group.topics;
    const shares = assignment.length > 0 ? MemberAssignment.decode(assignment)?.assignment : undefined;
    return [...(shares?.[topic!] ?? [])].sort((a, b) => a - b);
  }

  /** @throws REBALANCE_IN_PROGRESS when another round is due; UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION when we are out */
  async heartbeat(): Promise<void> {
    const member = { groupGenerationId: this.#generation, memberId: this.#memberId };
    await (await this.#find()).heartbeat({ groupId: this.group.id, ...member });
  }

  /** The coordinator may have moved: it is looked for again. With `out`, we join as somebody new. */
  forget(out: boolean): void {
    this.#coordinator = null;
    if (out) this.#memberId = "";
  }

  /** The others hear of it at once; without it they would wait for the session to end. */
  async leave(): Promise<void> {
    if (this.#memberId === "") return;
    const memberId = this.#memberId;
    this.#memberId = "";
    await (await this.#find()).leaveGroup({ groupId: this.group.id, memberId });
  }

  async #find(): Promise<Coordinator> {
    this.#coordinator ??= (await this.cluster.findGroupCoordinator({ groupId: this.group.id })) as Coordinator;
    return this.#coordinator;
  }
}
