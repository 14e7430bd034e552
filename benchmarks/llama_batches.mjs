// Batches of llama.cpp, by node-llama-cpp: `llm_server.py --node-llama` runs this program.
// Each line of standard input is a list of prompts, and how many tokens continue each of them; all
// run at once, and a line of standard output follows the last token.
import {createRequire} from "node:module";
import {createInterface} from "node:readline";
import {pathToFileURL} from "node:url";

const [folder, path, threads, most, size] = process.argv.slice(2);
const found = createRequire(folder + "/package.json").resolve("node-llama-cpp");
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(found));
const llama = await getLlama({
    gpu: false, build: "never", maxThreads: +threads, logLevel: LlamaLogLevel.error
});
const model = await llama.loadModel({modelPath: path});
const context = await model.createContext({
    sequences: +most, contextSize: +size, batchSize: +size, threads: +threads, flashAttention: true
});

async function read(prompt, tokens) {
    const sequence = context.getSequence();
    const options = {temperature: 0, yieldEogToken: true};
    for await (const _ of sequence.evaluate(model.tokenize(prompt), options))
        if (--tokens <= 0)
            break;
    await sequence.dispose();
}

console.log("ready");
for await (const line of createInterface({input: process.stdin})) {
    const [prompts, tokens] = JSON.parse(line);
    await Promise.all(prompts.map((prompt) => read(prompt, tokens)));
    console.log("done");
}
process.exit(0);
