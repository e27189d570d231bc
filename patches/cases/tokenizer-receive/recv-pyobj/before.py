class TokenizerManager:
    async def handle_loop(self):
        """Receive answers for ever."""
        while True:
            recv_obj = await self.recv_from_detokenizer.recv_pyobj()
            self._result_dispatcher(recv_obj)
