import { BaseSequencer, type TestSpecification } from "vitest/node";

/**
 * Files of a suite by how long they take, longest first, so that all workers end together. On a clean clone nothing is
 * known of that, and the runner goes by size: a file of ten lines that draws for minutes would come last, and alone.
 * @param longest ends of their names, in this order; the others follow as the runner has them
 */
export const longestFirst = (longest: readonly string[]) =>
  class extends BaseSequencer {
    override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
      const place = ({ moduleId }: TestSpecification): number => {
        const at = longest.findIndex((end) => moduleId.endsWith(end));
        return at === -1 ? longest.length : at;
      };
      return (await super.sort(files)).sort((a, b) => place(a) - place(b));
    }
  };
