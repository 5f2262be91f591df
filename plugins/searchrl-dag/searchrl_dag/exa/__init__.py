"""Web search by Exa as a retriever: settings, requests and answers."""
