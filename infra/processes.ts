/** Reports whether a process with this id runs that this process may signal. @param pid id of the process */
export const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};
