// Talks: `node talk.mjs FOLDER`, questions and texts in JSON on the input. The answers of one
// conversation and its first answer again, the errors of what is refused, the tokens of texts, and
// what these write.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { questions, refused, texts, maxTokens } = JSON.parse(readFileSync(0, "utf8"));
const { encode, open, Text } = await import(pathToFileURL(`${process.argv[2]}/chat.chat.js`));
const answers = [], errors = [];
const tried = async (call) => errors.push(await call().then(() => "", (error) => error.message));
if (questions.length > 0) {
  const chat = await open();
  const answer = async (question) => {
    let found = "";
    for await (const piece of chat.answer(question, { maxTokens })) found += piece;
    return found;
  };
  for (const question of questions) answers.push(await answer(question));
  chat.clear();
  answers.push(await answer(questions[0]));
  for (const [message, options] of refused) await tried(() => chat.answer(message, options).next());
  const left = chat.answer("a");
  await left.next();
  await tried(() => chat.answer("b").next());
  await tried(async () => chat.clear());
  await left.return();
  chat.clear();
  answers.push(await answer(questions[0]));
  const html = new TextEncoder().encode("<!doctype html>");
  await tried(() => open({ wasm: html }));
  await tried(() => open({ wasm: new Response("", { status: 404 }) }));
  await tried(() => open({ weights: html }));
}
const tokens = texts.map(encode);
const written = tokens.map((each) => {
  const text = new Text();
  return each.map((token) => text.add(token)).join("") + text.end();
});
console.log(JSON.stringify({ answers, errors, tokens, written }));
