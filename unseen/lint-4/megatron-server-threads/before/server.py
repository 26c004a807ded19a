import json

import torch
from flask import Flask, request
from flask_restful import Api, Resource

GENERATE = 0


class Generate(Resource):
    def __init__(self, model, generate):
        self.model = model
        self.generate = generate

    @staticmethod
    def tell_others():
        choice = torch.tensor([GENERATE], dtype=torch.long, device="cuda")
        torch.distributed.broadcast(choice, 0)

    def put(self):
        body = request.get_json()
        sentences = body["sentences"]
        self.tell_others()
        texts = self.generate(self.model, sentences)
        return json.dumps({"text": texts})


def serve(model, generate, url):
    app = Flask(__name__)
    Api(app).add_resource(Generate, "/generate", resource_class_args=[model, generate])
    app.run(url, threaded=True, debug=False)
