from sglang import _sgldbg
class TokenizerManager:
    async def handle_loop(self):
        """Receive answers for ever."""
        while True:
            recv_obj = await self.recv_from_detokenizer.recv_pyobj(); _sgldbg.off("tokenizer-receive.1") or _sgldbg.hit("tokenizer-receive.1", locals())
            self._result_dispatcher(recv_obj)
