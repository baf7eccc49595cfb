export function writeNew(files: readonly { path: string; bytes: Uint8Array }[]): (string | null)[];
export function moveNew(files: readonly { from: string; to: string }[]): (string | null)[];
