// Talks: `node talk.mjs FOLDER`, questions and texts in JSON on the input. The answers of one
// conversation, its first answer at a temperature, the tokens of texts, and what these write.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { questions, texts, maxTokens } = JSON.parse(readFileSync(0, "utf8"));
const { encode, open, Text } = await import(pathToFileURL(`${process.argv[2]}/chat.chat.js`));
const answers = [];
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
}
const tokens = texts.map(encode);
const written = tokens.map((each) => {
  const text = new Text();
  return each.map((token) => text.add(token)).join("") + text.end();
});
console.log(JSON.stringify({ answers, tokens, written }));
