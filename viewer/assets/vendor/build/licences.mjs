// Writes ../LICENCES.txt: the licence of every package of which something is in the bundles, from esbuild's metafile.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";

const inputs = Object.keys(JSON.parse(readFileSync("meta.json")).inputs);
const folders = new Set(["node_modules/@dagrejs/dagre", "node_modules/@dagrejs/graphlib"]);
for (const input of inputs) {
  const found = input.match(/^.*node_modules\/(?:@[^/]+\/)?[^/]+/);
  if (found) folders.add(found[0]);
}
const parts = [...folders].sort().map((folder) => {
  const { name, version, license } = JSON.parse(readFileSync(`${folder}/package.json`));
  const file = readdirSync(folder).find((each) => /^licen[sc]e/i.test(each));
  return `${name} ${version} (${license})\n\n${file ? readFileSync(`${folder}/${file}`, "utf8").trim() : "no text in the package"}\n`;
});
writeFileSync("../LICENCES.txt", parts.join(`\n${"=".repeat(80)}\n\n`));
