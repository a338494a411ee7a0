// What the programs of this folder print with: one line per expression, its value or its error.
const lines = [];

const text = (value) => JSON.stringify(value, (_key, member) => {
  if (member instanceof Map) return ["Map", ...member];
  if (typeof member === "bigint") return `${member}n`;
  return member === undefined ? "(undefined)" : member;
});

export async function show(label, expression) {
  try {
    const value = await expression();
    lines.push(`${label} => ${typeof value} ${text(value)}`);
  } catch (error) {
    lines.push(`${label} !! ${error?.constructor?.name} | ${error?.name}: ${error?.message}`);
  }
}

export const report = () => new Response(lines.splice(0).join("\n"));
