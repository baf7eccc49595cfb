import kafkajs, { type Broker, type Cluster } from "kafkajs";

/** A member of a group. */
export interface Member {
  id: string;
  /** Partitions that the member claims: those that it holds, or has not yet released. */
  owned: readonly number[];
}

/**
 * Assigns the partitions 0 .. n-1 to the members as evenly as possible, and moves as few as possible. A partition that
 * has to move is assigned to no member in this round: its holder releases it and requests another round, in which the
 * partition is free. So no member gets a partition while another still works on it. If two members claim one partition,
 * both must release it.
 * @returns the partitions of each member, ascending; the result does not depend on the order of the members
 */
export function assignPartitions(partitions: number, members: readonly Member[]): Map<string, number[]> {
  const claims = new Map<number, number>();
  for (const { owned } of members)
    for (const partition of new Set(owned)) claims.set(partition, (claims.get(partition) ?? 0) + 1);
  const shares = members.map(({ id, owned }) => ({
    id,
    parts: [...new Set(owned)].filter((p) => p >= 0 && p < partitions && claims.get(p) === 1).sort((a, b) => a - b),
  }));
  // The members that hold most come first. The first ones may keep one partition more, so that an even assignment does
  // not change.
  shares.sort((a, b) => b.parts.length - a.parts.length || (a.id < b.id ? -1 : 1));
  const quota = (rank: number) => Math.floor(partitions / shares.length) + (rank < partitions % shares.length ? 1 : 0);
  for (const [rank, member] of shares.entries()) member.parts = member.parts.slice(0, quota(rank));
  const freePartitions = Array.from({ length: partitions }, (_, p) => p).filter((p) => !claims.has(p));
  for (const [rank, { parts }] of shares.entries()) parts.push(...freePartitions.splice(0, quota(rank) - parts.length));
  return new Map(shares.map(({ id, parts }) => [id, parts.sort((a, b) => a - b)]));
}

const { AssignerProtocol } = kafkajs;
const { MemberMetadata, MemberAssignment } = AssignerProtocol;

/** Name of the assignment protocol. The broker refuses members with another protocol. */
const PROTOCOL = "touchstone-cooperative";

/** A consumer group: its name (`id`), its topics, and the number of partitions of each topic. */
export interface Group {
  id: string;
  topics: readonly string[];
  partitions: number;
  /** Time without a heartbeat after which the broker counts a member as dead, ms. */
  sessionMs: number;
}

/** Methods of a broker that the types of kafkajs leave out: one for each request of the group protocol. */
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

/** Returns the partitions that a member claims when it joins, from the user data in its metadata. */
function claimedPartitions(userData: Buffer): number[] {
  try {
    const claim = JSON.parse(userData.toString("utf8")) as { owned?: unknown };
    return Array.isArray(claim.owned) ? claim.owned.filter((p): p is number => Number.isInteger(p)) : [];
  } catch {
    // Unreadable data counts as no claim. If two members then work on one partition, only one of them can create the
    // next commit of its segments.
    return [];
  }
}

/**
 * A member of a consumer group: speaks Kafka's classic group protocol with the coordinator (join, sync, heartbeat,
 * leave). The consumer of kafkajs is not used, since it fetches what it is assigned and cannot ask for another
 * rebalance.
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
   * Runs one round: joins the group, assigns all partitions if this member is the group's leader, and returns the
   * partitions of this member. It takes as long as the slowest member needs to join, at most a session.
   * @throws the broker's error (with `type`), or that of the connection
   */
  async round(owned: readonly number[]): Promise<{ generation: number; partitions: number[] }> {
    const groupId = this.group.id;
    const coordinator = await this.#findCoordinator();
    const { memberId, generationId, leaderId, members } = await this.#join(coordinator, owned);
    this.#memberId = memberId;
    this.#generation = generationId;
    const groupAssignment = leaderId === memberId ? this.#encodeAssignments(members) : [];
    const answer = await coordinator.syncGroup({ groupId, generationId, memberId, groupAssignment });
    return { generation: generationId, partitions: this.#readAssignment(answer.memberAssignment) };
  }

  /** Joins the group. A broker first gives a new member its id, and the member must then repeat the request with it. */
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

  #encodeAssignments(members: readonly { memberId: string; memberMetadata: Buffer }[]) {
    const claims = members.map(({ memberId, memberMetadata }) => ({
      id: memberId,
      owned: claimedPartitions(MemberMetadata.decode(memberMetadata)?.userData ?? Buffer.alloc(0)),
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

  #readAssignment(assignment: Buffer): number[] {
    const [topic] = this.group.topics;
    const shares = assignment.length > 0 ? MemberAssignment.decode(assignment)?.assignment : undefined;
    return [...(shares?.[topic!] ?? [])].sort((a, b) => a - b);
  }

  /**
   * Sends a heartbeat.
   * @throws errors with `type` REBALANCE_IN_PROGRESS when another round must begin; UNKNOWN_MEMBER_ID or
   * ILLEGAL_GENERATION when this process is no longer a member
   */
  async heartbeat(): Promise<void> {
    const member = { groupGenerationId: this.#generation, memberId: this.#memberId };
    await (await this.#findCoordinator()).heartbeat({ groupId: this.group.id, ...member });
  }

  /**
   * Forgets the coordinator, which may have moved, so that the next request looks it up again.
   * @param isExpelled true: also forgets the member id, so that the next round joins as a new member
   */
  forget(isExpelled: boolean): void {
    this.#coordinator = null;
    if (isExpelled) this.#memberId = "";
  }

  /** Leaves the group. Otherwise the other members would get the partitions only when the session ends. */
  async leave(): Promise<void> {
    if (this.#memberId === "") return;
    const memberId = this.#memberId;
    this.#memberId = "";
    await (await this.#findCoordinator()).leaveGroup({ groupId: this.group.id, memberId });
  }

  async #findCoordinator(): Promise<Coordinator> {
    this.#coordinator ??= (await this.cluster.findGroupCoordinator({ groupId: this.group.id })) as Coordinator;
    return this.#coordinator;
  }
}
