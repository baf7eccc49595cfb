/** Partitions changed hands while they were worked on; what was begun is dropped, and the next turn goes on. */
export class HandsChanged extends Error {
  constructor() {
    super("the partitions changed hands meanwhile");
    this.name = "HandsChanged";
  }
}
