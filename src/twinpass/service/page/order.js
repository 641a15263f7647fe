// An order with similar sentences together: average linkage, each joined group turned so that similar ends touch.

export function alikeTogether(matrix) {
  const groups = matrix.map((_, place) => [place]);
  while (groups.length > 1) {
    const [first, second] = closest(groups, matrix);
    const joined = join(groups[first], groups[second], matrix);
    groups.splice(second, 1);
    groups[first] = joined;
  }
  return groups[0] ?? [];
}

function closest(groups, matrix) {
  let best = [0, 1];
  let most = -Infinity;
  for (let first = 0; first < groups.length; first += 1) {
    for (let second = first + 1; second < groups.length; second += 1) {
      const likeness = average(groups[first], groups[second], matrix);
      if (likeness > most) [best, most] = [[first, second], likeness];
    }
  }
  return best;
}

function average(some, others, matrix) {
  let total = 0;
  for (const one of some) for (const other of others) total += matrix[one][other];
  return total / (some.length * others.length);
}

function join(left, right, matrix) {
  const turned = (group) => [group, [...group].reverse()];
  const ways = turned(left).flatMap((one) => turned(right).map((other) => [one, other]));
  const touching = ([one, other]) => matrix[one.at(-1)][other[0]];
  return ways.reduce((best, way) => touching(way) > touching(best) ? way : best).flat();
}
