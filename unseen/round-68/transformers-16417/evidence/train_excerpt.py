tokenizer = AutoTokenizer.from_pretrained("xlm-roberta-large")
counts = Counter()
for doc in load_docs(args.corpus, sample=0.2):          # domain corpus
    counts.update(w for w in word_tokenize(doc) if len(w) > 3)
new_tokens = [w for w, c in counts.items() if c >= 50 and w not in tokenizer.vocab]
n = tokenizer.add_tokens(new_tokens)
model = AutoModelForMaskedLM.from_pretrained("xlm-roberta-large")
model.resize_token_embeddings(len(tokenizer))
logger.info("local_rank %d: added %d tokens, embedding now %d", args.local_rank, n, len(tokenizer))
