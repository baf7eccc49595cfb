/** Line feeds in a piece of a text. */
export declare function linesIn(piece: Uint8Array): number;
